"""Following the files of a run, whoever writes them and whenever."""

import os
import signal
import threading
import time
from pathlib import Path

from dlrmx.runs.claim import claim_attempt
from dlrmx.runs.events import append_event
from dlrmx.runs.records import append_record
from dlrmx_cli.follow import Interrupts, RunTail, Tail, follow
from dlrmx_cli.progress import Entry
from scripted import STEP, MakeRun


class Notes:
    """A view that writes down what it is shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def begin(self, attempt: int) -> None:
        self.shown.append(f"attempt {attempt}")

    def show(self, entry: Entry) -> None:
        self.shown.append(str(entry.get("event") or entry["kind"]))

    def wait(self, text: str) -> None:
        assert text == ""

    def note(self, text: str) -> None:
        self.shown.append(text)

    def close(self) -> None:
        self.shown.append("closed")


def test_a_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []
    path.write_bytes(b"one\ntw")
    assert tail.lines() == ["one"]
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert tail.lines() == ["two", "three"]
    assert tail.lines() == []


def test_a_run_is_followed_over_its_attempts_in_the_order_of_time(make_run: MakeRun) -> None:
    run = make_run("running")
    tail = RunTail(run)
    first = run.attempt(1)
    append_record(first, **STEP)
    append_event(first, "saved", step=10, bytes=1, seconds=0.1)
    names = [(number, entry.get("event") or entry["kind"]) for number, entry in tail.entries()]
    assert names == [(1, "claimed"), (1, "begin"), (1, "step"), (1, "saved")]
    append_event(claim_attempt(run), "begin", step=10)
    assert [(number, entry["event"]) for number, entry in tail.entries()] == [(2, "claimed"), (2, "begin")]
    assert list(tail.entries()) == []


def test_attempts_before_the_first_wanted_are_left_out(make_run: MakeRun) -> None:
    run = make_run("stopped")
    claim_attempt(run)
    assert {number for number, _ in RunTail(run, first=2).entries()} == {2}


def test_a_torn_line_is_skipped(make_run: MakeRun) -> None:
    run = make_run("running")
    with run.attempt(1).events.open("ab") as file:
        file.write(b'{"event": "sav\n[1]\n')
    append_event(run.attempt(1), "finished", step=20)
    assert [entry["event"] for _, entry in RunTail(run).entries()] == ["claimed", "begin", "finished"]


def test_what_is_written_just_before_the_end_is_shown(make_run: MakeRun) -> None:
    run = make_run("running")
    view = Notes()

    def over() -> bool:
        append_event(run.attempt(1), "finished", step=20)
        return True

    follow(run, view, first=1, over=over, interrupted=lambda _: True)
    assert view.shown == ["attempt 1", "claimed", "begin", "finished"]


def test_each_interrupt_is_told_and_none_is_lost(make_run: MakeRun) -> None:
    told: list[int] = []

    def interrupted(times: int) -> bool:
        told.append(times)
        return times == 2

    def press_twice() -> None:
        for _ in range(2):
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press_twice)
    thread.start()
    follow(make_run("running"), Notes(), first=1, over=lambda: False, interrupted=interrupted)
    thread.join()
    assert told == [1, 2]


def test_the_former_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.count == 1
    assert signal.getsignal(signal.SIGINT) is before
