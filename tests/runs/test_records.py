from pathlib import Path
from typing import Any

import pytest

from dlrmx.runs.events import append_event
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.records import append_record, foreign_lines, read_records


def attempt_of(run: RunPaths, number: int, begin: int | None, steps: list[int]) -> AttemptPaths:
    attempt = run.attempt(number)
    attempt.dir.mkdir(parents=True)
    if begin is not None:
        append_event(attempt, "begin", step=begin)
    for step in steps:
        append_record(attempt, kind="step", step=step, loss=number + step / 100)
    return attempt


def test_a_later_attempt_voids_what_it_repeats(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    attempt_of(run, 1, 0, [10, 20, 30])
    attempt_of(run, 2, 20, [30, 40])
    attempt_of(run, 3, None, [])
    kept = [(record["attempt"], record["step"]) for record in read_records(run)]
    assert kept == [(1, 10), (1, 20), (2, 30), (2, 40)]


def test_going_back_to_an_early_step_voids_all_above_it(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    attempt_of(run, 1, 0, [10, 20])
    attempt_of(run, 2, 20, [30])
    attempt_of(run, 10, 0, [10])
    assert [(record["attempt"], record["step"]) for record in read_records(run)] == [(10, 10)]


def test_torn_records_are_skipped(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    attempt = attempt_of(run, 1, 0, [10])
    with attempt.records.open("a") as file:
        file.write('{"kind": "step", "step": 2')
    append_record(attempt, kind="evaluation", step=10, split="test", rows=5, auc=None)
    kinds = [record["kind"] for record in read_records(run)]
    assert kinds == ["step", "evaluation"]


@pytest.mark.parametrize(
    "change",
    [
        {"loss": "low"}, {"auc": [0.5]}, {"rows": "many"}, {"split": None}, {"step": 1.5}, {"time": "today"},
        {"bytes": 3}, {"bytes": {"ids": "x"}}, {"samples_per_s": {}}, {"kind": 7},
    ],
)  # fmt: skip
def test_what_was_edited_by_hand_is_left_out_and_told(tmp_path: Path, change: dict[str, Any]) -> None:
    run = RunPaths(tmp_path)
    attempt = attempt_of(run, 1, 0, [10])
    sound = {"kind": "evaluation", "step": 10, "split": "test", "rows": 5, "loss": 0.5, "auc": None}
    append_record(attempt, **sound)
    append_record(attempt, **{**sound, **change})
    assert [record["kind"] for record in read_records(run)] == ["step", "evaluation"]
    assert foreign_lines(run) == [f"{attempt.records}: 1 line is no record"]


def test_an_evaluation_names_its_split(tmp_path: Path) -> None:
    append_record(attempt_of(RunPaths(tmp_path), 1, 0, []), kind="evaluation", step=10, rows=5)
    assert read_records(RunPaths(tmp_path)) == []
