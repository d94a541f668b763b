"""The evaluations of runs side by side; costs beside predictions."""

import json

import pytest

from dlrmx.runs.events import append_event
from dlrmx.runs.records import append_record
from dlrmx_cli.report import cost_notes, cost_rows, cost_table, report_rows, report_table
from scripted import EVALUATION, STEP, Dlrmx, MakeRun


def test_the_newest_evaluation_of_each_split_counts(make_run: MakeRun) -> None:
    run = make_run()
    for record in (
        {**EVALUATION, "split": "validation", "step": 10, "ne": 0.9, "final": False},
        {**EVALUATION, "split": "validation", "step": 20, "ne": 0.8, "final": False},
        EVALUATION,
        {**STEP, "samples_per_s": 100.0},
        {**STEP, "samples_per_s": 300.0},
    ):
        append_record(run.attempt(1), **record)
    rows = {row["split"]: row for row in report_rows(run)}
    assert (rows["validation"]["step"], rows["validation"]["ne"]) == (20, 0.8)
    assert rows["test"]["optimum_ne"] == EVALUATION["optimum_ne"]
    # Equally many samples at 100/s and at 300/s: 2 / (1/100 + 1/300).
    assert rows["test"]["samples_per_s"] == pytest.approx(150.0)


def test_the_table_tells_unknown_from_undefined(make_run: MakeRun) -> None:
    run = make_run()
    append_record(run.attempt(1), **{**EVALUATION, "auc": None, "optimum_ne": None})
    header, line = report_table(report_rows(run)).splitlines()
    assert header.split()[:3] == ["run", "split", "step"]
    assert "optimum" not in header
    assert line.split() == ["clicks-1", "test", "20", "100", "0.4100", "0.7531", "undefined", "0.9000", "1.0200"]


def test_a_run_without_evaluations_has_no_rows(make_run: MakeRun) -> None:
    assert report_rows(make_run("failed")) == []


def test_steps_and_memory_stand_beside_what_was_predicted(make_run: MakeRun, dlrmx: Dlrmx) -> None:
    run = make_run()
    append_event(run.attempt(1), "worker_started", rank=0, rss_bytes=2**30)
    append_record(run.attempt(1), **STEP)  # 10 ms, 3 GiB
    run.attempt(1).job.write_text(json.dumps({"predicted": {"step_s": 0.0085, "memory_bytes": 2 * 2**30}}))
    lines = cost_table(cost_rows(run)).splitlines()
    assert lines[1].split() == ["clicks-1", "10", "ms", "8.5", "ms", "2", "GiB", "2", "GiB"]
    assert "step 10 ms (8.5 ms predicted), memory 2 GiB (2 GiB predicted)" in dlrmx("status", "clicks-1").stdout
    assert "8.5 ms" in dlrmx("report", "clicks-1").stdout


def test_what_came_out_far_from_its_prediction_is_said(make_run: MakeRun, dlrmx: Dlrmx) -> None:
    run = make_run()
    append_event(run.attempt(1), "worker_started", rank=0, rss_bytes=2**30)
    append_record(run.attempt(1), **STEP)  # 10 ms, 2 GiB more than at first
    run.attempt(1).job.write_text(json.dumps({"predicted": {"step_s": 0.002, "memory_bytes": 2**30}}))
    assert cost_notes(cost_rows(run)[0]) == [
        "a step took 5.00 times what was predicted",
        "memory is 2.00 times what was predicted",
    ]
    for verb in ("report", "status"):
        assert "5.00 times" in dlrmx(verb, "clicks-1").stdout
    run.attempt(1).job.write_text(json.dumps({"predicted": {"step_s": 0.04, "memory_bytes": 1.9 * 2**30}}))
    assert cost_notes(cost_rows(run)[0]) == ["a step took 0.25 times what was predicted"]


def test_on_a_terminal_of_80_columns_nothing_is_wider_and_nothing_is_lost(
    make_run: MakeRun, dlrmx: Dlrmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(name="movielens_100k-with-wide-tables-12")
    append_record(run.attempt(1), **STEP)
    append_record(run.attempt(1), **{**EVALUATION, "split": "validation", "step": 100_000, "rows": 10_000_000})
    piped = dlrmx("report", run.name).stdout
    monkeypatch.setattr("dlrmx_cli.report.screen_width", lambda: 80)
    shown = dlrmx("report", run.name).stdout
    assert max(map(len, piped.splitlines())) > 80 >= max(map(len, shown.splitlines()))
    assert set(piped.split()) <= set(shown.split())


def test_without_a_prediction_there_is_none_beside(make_run: MakeRun) -> None:
    run = make_run()
    assert cost_rows(run) == []
    append_record(run.attempt(1), **STEP)
    assert cost_table(cost_rows(run)).splitlines()[1].split() == ["clicks-1", "10", "ms", *["unknown"] * 3]
