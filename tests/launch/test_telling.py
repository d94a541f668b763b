"""What a pod tells of its run, and the copy that a launcher makes of it."""

import io
import json
from pathlib import Path

import pytest

from dlrmx.launch.mirror import hear
from dlrmx.launch.telling import TELL_VARIABLE, telling
from dlrmx.runs.claim import claim_attempt, create_run, hold, is_live, note_copy
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import append_record
from dlrmx.runs.run_file import update_run
from dlrmx.runs.state import run_state


def told(run: RunPaths) -> list[str]:
    output = io.StringIO()
    with telling(run, {TELL_VARIABLE: "1"}, output):
        attempt = claim_attempt(run)
        update_run(run, state="running", attempt=attempt.number)
        append_event(attempt, "begin", step=0, total_steps=9)
        append_record(attempt, kind="step", step=3, loss=0.5)
        append_event(attempt, "saved", step=3, bytes=1, seconds=0.1)
        attempt.recipe.write_text("name: ctr\n")
        attempt.node_log(0).write_bytes(b"ascii\n\xff\xfe no text\n" + "ü".encode() * 8_192)
        update_run(run, state="done", exit_code=0)
    return output.getvalue().splitlines(keepends=True)


def files(run: RunPaths) -> dict[str, bytes]:
    found = {path.relative_to(run.dir).as_posix(): path.read_bytes() for path in run.dir.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if name not in ("lock", "copy.json")}


def test_a_copy_has_every_byte_whatever_is_heard_twice(tmp_path: Path) -> None:
    run, copy = create_run(tmp_path / "pod", "ctr", None, "f" * 12), RunPaths(tmp_path / "here" / "ctr-1")
    lines = told(run)
    assert all(len(line) < 16_384 * 6 for line in lines)
    for line in [*lines, *lines]:
        assert hear(copy, line)
    assert files(copy) == files(run)
    state = run_state(copy)
    assert (state.state, state.step) == ("done", 3)


def test_the_end_is_told_last(tmp_path: Path) -> None:
    lines = told(create_run(tmp_path, "ctr", None, "f" * 12))
    assert json.loads(lines[-1])["dlrmx"] == "run.json"
    assert '\\"state\\": \\"done\\"' in lines[-1]


def test_nothing_is_told_unasked(tmp_path: Path) -> None:
    output = io.StringIO()
    with telling(create_run(tmp_path, "ctr", None, "f" * 12), {}, output):
        pass
    assert output.getvalue() == ""


@pytest.mark.parametrize(
    "line",
    [
        "Traceback\n",
        '{"dlrmx": "run.json"}\n',
        '{"dlrmx": "../run.json", "at": null, "text": "x"}\n',
        '{"dlrmx": "/etc/passwd", "at": null, "text": "x"}\n',
        '{"dlrmx": "attempts/0001/../../../x", "at": 0, "text": "x"}\n',
        '{"dlrmx": "attempts/0001/events.jsonl", "at": -1, "text": "x"}\n',
        '{"dlrmx": "attempts/0001/events.jsonl", "at": 0, "text": "\\ud800"}\n',
        '{"dlrmx": "attempts/0001/events.jsonl", "at": 0, "text": 3}\n',
        '{"dlrmx": "attempts/0001/events.jsonl", "at": 0, "te',
    ],
)
def test_what_is_no_piece_of_a_run_is_not_written(tmp_path: Path, line: str) -> None:
    assert not hear(RunPaths(tmp_path / "run"), line)
    assert not any(tmp_path.rglob("*"))


def test_a_copy_lives_as_it_was_last_said(tmp_path: Path) -> None:
    run = create_run(tmp_path, "ctr", None, "f" * 12)
    attempt = claim_attempt(run)
    update_run(run, state="running", attempt=1)
    append_event(attempt, "saved", step=7, bytes=1, seconds=0.1)
    note_copy(run, live=True)
    assert is_live(run)
    assert (run_state(run).state, run_state(run).checkpoint) == ("running", 7)
    note_copy(run, live=False)
    with hold(run):
        assert not is_live(run)
    assert run_state(run).state == "lost"
