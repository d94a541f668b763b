"""Stopping a real run: Ctrl-C once and twice, a stop request during a slow save; what is resumed then is the same."""

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from dlrmx.runs.run_file import read_run
from dlrmx.runs.state import run_state
from living import House, events, kill, steps_saved, wait_for
from training import differing

ENDLESS = "train.stop.steps=1000000"


def interrupt(process: "subprocess.Popen[bytes]") -> None:
    """What a terminal does on Ctrl-C: SIGINT to the whole process group in the foreground."""
    os.killpg(process.pid, signal.SIGINT)


def test_ctrl_c_saves_and_stops_and_the_resumed_run_ends_with_the_same_bits(house: House) -> None:
    run = house.run("broken")
    launcher = house.train("broken", ENDLESS)
    wait_for(lambda: events(run, 1, "saved"))
    interrupt(launcher)
    assert launcher.wait(300) == 75
    state = run_state(run)
    (stopped,) = events(run, 1, "stopped")
    assert (state.state, state.checkpoint) == ("stopped", stopped["step"])
    told = f"saved at step {stopped['step']:,}, resume with: dlrmx resume broken"
    assert house.stderr(launcher).splitlines()[-1] == told
    assert house.empty()
    end = f"train.stop.steps={stopped['step'] + 7}"
    house.execute("resume", "broken", "-s", end)
    assert house.train("whole", end).wait(300) == 0
    final, other = (max(house.run(name).checkpoints.iterdir()) for name in ("broken", "whole"))
    assert final.name == other.name
    assert differing(final, other) == []


def test_a_second_ctrl_c_kills(houses: Callable[..., House]) -> None:
    """A worker that is held up keeps the save from ending: only the second one helps."""
    house = houses()
    run = house.run("held")
    launcher = house.train("held", ENDLESS)
    (worker, *_) = wait_for(lambda: events(run, 1, "begin") and events(run, 1, "worker_started"))
    kill(worker["pid"], signal.SIGSTOP)
    interrupt(launcher)
    wait_for(lambda: run_state(run).state == "stopping")
    time.sleep(1)
    assert launcher.poll() is None
    interrupt(launcher)
    assert launcher.wait(60) == 130
    wait_for(house.empty, seconds=5)
    assert (read_run(run)["state"], read_run(run)["exit_code"]) == ("failed", 130)
    house.execute("resume", "held", "-s", f"train.stop.steps={(steps_saved(run) or [0])[-1] + 1}")


def slow_save(house: House, seconds: float) -> None:
    """Hold up one worker in the middle of a save, ask to stop, let it go on `seconds` later."""
    run = house.run("slow")
    launcher = house.train("slow", ENDLESS)
    workers = {event["rank"]: event["pid"] for event in wait_for(lambda: started(house))}
    step = hold_in_save(house, workers[1])
    house.execute("cancel", "slow")
    time.sleep(seconds)
    assert step not in steps_saved(run)
    assert launcher.poll() is None
    assert run_state(run).state == "stopping"
    kill(workers[1], signal.SIGCONT)
    assert launcher.wait(300) == 75, house.stderr(launcher)
    assert events(run, 1, "failed") == []
    (saved,) = (event for event in events(run, 1, "saved") if event["step"] == step)
    assert saved["seconds"] > seconds
    assert run_state(run).checkpoint == events(run, 1, "stopped")[0]["step"]
    assert house.empty()


def started(house: House) -> list[dict[str, int]] | None:
    found = events(house.run("slow"), 1, "worker_started")
    return found if len(found) == 2 else None


def hold_in_save(house: House, pid: int) -> int:
    """SIGSTOP a worker between the first byte of a save and its rename; returns the step."""
    run = house.run("slow")

    def partial() -> str | None:
        found = [file for file in run.checkpoints.glob(".step-*/rank-*") if file.stat().st_size]
        return found[0].parent.name if found else None

    while True:
        name: str = wait_for(partial, every=0.002)
        kill(pid, signal.SIGSTOP)
        time.sleep(1)  # rank 0 does its part of what can be done alone
        if (run.checkpoints / name).exists():
            return int(name.removeprefix(".step-").partition(".")[0])
        kill(pid, signal.SIGCONT)


def test_a_save_of_seven_seconds_survives_a_stop_request(houses: Callable[..., House]) -> None:
    """Longer than others are given once a worker has died."""
    slow_save(houses(rows=60_000), 7)


@pytest.mark.slow
def test_a_save_of_45_seconds_survives_a_stop_request(houses: Callable[..., House]) -> None:
    slow_save(houses(rows=60_000), 45)
