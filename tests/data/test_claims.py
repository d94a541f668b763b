"""Claims: one holder at a time, and a dead one's are free."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlrmx.data import claims as module
from dlrmx.data.claims import Claims

_HOLD = """
import sys, time
from pathlib import Path
from dlrmx.data import claims
if sys.argv[2]:
    claims._place = lambda: sys.argv[2]
claims.PULSE_S = 0.05
with claims.Claims(Path(sys.argv[1])) as held:
    print(held.take("it"), flush=True)
    time.sleep(600)
"""


def holder(folder: Path, place: str = "") -> "subprocess.Popen[str]":
    """A process that holds "it", on another machine if `place` names one."""
    command = [sys.executable, "-c", _HOLD, str(folder), place]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "True\n"
    return process


def killed(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


def test_one_holds_it_until_it_leaves(tmp_path: Path) -> None:
    with Claims(tmp_path) as first:
        with Claims(tmp_path) as second:
            assert second.take("it")
            assert not second.take("it")
            assert not first.take("it")
            assert first.take("another")
            assert not first.alone()
        assert first.alone()
        assert first.take("it")
    assert not list(tmp_path.glob("pulse-*"))


def test_many_that_want_the_same(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path), f"place{n}"], stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    taken = []
    for process in processes:
        assert process.stdout is not None
        with process.stdout:
            taken.append(process.stdout.readline())
    for process in processes:
        killed(process)
    assert sorted(taken) == ["False\n"] * 3 + ["True\n"]


def test_what_a_killed_process_of_this_machine_held_is_free_at_once(tmp_path: Path) -> None:
    process = holder(tmp_path)
    with Claims(tmp_path) as claims:
        assert not claims.take("it")
        killed(process)
        assert claims.take("it")
        assert claims.alone()


def test_what_died_on_another_machine_is_free_once_its_pulse_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEAD_S", 2.0)
    process = holder(tmp_path, "elsewhere")
    with Claims(tmp_path) as claims:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert not claims.take("it")  # it lives: its process number means nothing here
            time.sleep(0.05)
        killed(process)
        stopped = time.monotonic()
        while not claims.take("it"):
            assert time.monotonic() < stopped + 30
            time.sleep(0.05)
        assert time.monotonic() - stopped > 1.5


def test_one_that_begins_frees_what_the_dead_of_its_machine_held(tmp_path: Path) -> None:
    """Other machines would wait for their pulses."""
    killed(holder(tmp_path))
    assert list(tmp_path.glob("pulse-*"))
    with Claims(tmp_path):
        assert [path.name.split("-")[2] for path in tmp_path.glob("pulse-*")] == [str(os.getpid())]


def test_one_that_waits_hears_when_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    waited: list[int] = []
    with Claims(tmp_path) as first, Claims(tmp_path) as second:
        assert first.take_or_wait("it", lambda: False, lambda: None)
        assert not second.take_or_wait("it", lambda: len(waited) == 3, lambda: waited.append(1))
        assert len(waited) == 3
        first.drop("it")
        assert second.take_or_wait("it", lambda: False, lambda: None)
