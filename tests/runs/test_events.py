import os
import socket
import time
from pathlib import Path

from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.events import append_event, first_step, read_events
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.records import read_records


def test_an_event_says_when_where_and_what(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path)
    before = time.time()
    append_event(attempt, "saved", step=7, bytes=10, seconds=0.5)
    (event,) = read_events(attempt)
    assert before <= event.pop("time") <= time.time()
    host, pid = socket.gethostname(), os.getpid()
    assert event == {"event": "saved", "host": host, "pid": pid, "step": 7, "bytes": 10, "seconds": 0.5}


def test_events_can_be_asked_for_by_name(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path)
    for name in ("claimed", "phase", "saved", "phase"):
        append_event(attempt, name)
    with attempt.events.open("a") as file:
        file.write('{"n": 1}\n{"event": 3}\n{"event": "torn')
    assert [event["event"] for event in read_events(attempt)] == ["claimed", "phase", "saved", "phase"]
    assert [event["event"] for event in read_events(attempt, "saved", "claimed")] == ["claimed", "saved"]


def test_the_first_step_is_where_training_began(tmp_path: Path) -> None:
    attempt = AttemptPaths(tmp_path)
    append_event(attempt, "saved", step=3)
    assert first_step(read_events(attempt)) is None
    append_event(attempt, "begin", step=0, epoch=0, row=0, total_steps=9)
    assert first_step(read_events(attempt)) == 0


def test_lines_that_are_no_events_say_nothing(tmp_path: Path) -> None:
    attempt = claim_attempt(create_run(tmp_path, "tiny", None, "f" * 12))
    (attempt.dir.parent / "9x").mkdir()
    (attempt.dir.parent / "0002").write_text("no folder")
    before = read_events(attempt)
    with attempt.events.open("a") as file:
        file.write('{}\n[]\n3\n{"event": 3}\n{"event": "failed"}\n{"time": "x", "event": "failed"}\n\x00\n')
        file.write('{"time": 1, "event": "begin", "host": "h", "pid": 1}\n')
    with attempt.records.open("a") as file:
        file.write('{"step": 3}\n{"time": 1, "kind": "step", "step": "x"}\n')
    run = RunPaths(attempt.dir.parent.parent)
    assert [found.number for found in run.attempts()] == [1]
    assert read_events(attempt) == before
    assert read_records(run) == []
    assert first_step(read_events(attempt)) is None
