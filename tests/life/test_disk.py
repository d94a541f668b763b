"""Disks that refuse (size of files, space, read-only): training goes on and counts it, or stops, as it was told."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dlrmx.checkpoint.verify import problems
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.state import run_state
from living import House, events, job, steps_saved, wait_for

ENDLESS = "train.stop.steps=1000000"
FILE_BYTES = 256 * 1024  # more than a log, less than a rank's part of a checkpoint


class Mounts:
    """Mounts file systems as root does; where that is not allowed, it skips the test."""

    def __init__(self) -> None:
        self._folders: list[Path] = []

    def mount(self, folder: Path, *options: str) -> None:
        done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount here: {done.stderr.strip()}")
        if folder not in self._folders:
            self._folders.append(folder)

    def unmount_all(self) -> None:
        while self._folders:
            subprocess.run(["umount", "--lazy", str(self._folders.pop())], check=True)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    mounts = Mounts()
    yield mounts
    mounts.unmount_all()


def first_line(house: House, name: str) -> str:
    """Of `dlrmx status`."""
    return house.stdout(house.execute("status", name)).splitlines()[0]


def saves_failed(run: RunPaths, number: int) -> bool:
    return len(events(run, 1, "save_failed")) >= number


def limit(run: RunPaths, size: int) -> None:
    """Let the workers write files of at most so many bytes, from now on."""
    for event in events(run, 1, "worker_started"):
        resource.prlimit(event["pid"], resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_failed_saves_are_counted_and_passed_over_but_for_the_last_one(house: House) -> None:
    """By a limit on the size of files, which comes, goes and comes again."""
    run = house.run("limited")
    launcher = house.train("limited", ENDLESS, f"cluster.python={limited_python(house)}")
    wait_for(lambda: saves_failed(run, 2))
    assert steps_saved(run) == []
    assert "running, " in (line := first_line(house, "limited")) and "saves FAILED" in line, line
    limit(run, resource.RLIM_INFINITY)
    wait_for(lambda: events(run, 1, "saved"))
    limit(run, FILE_BYTES)
    house.execute("cancel", "limited")
    assert launcher.wait(300) == 1, "stopped, but not saved"
    state = run_state(run)
    assert (state.state, state.checkpoint) == ("failed", events(run, 1, "saved")[-1]["step"])
    assert state.first_cause
    assert state.first_cause.cause == "SaveError"
    assert "(EFBIG)" in house.stderr(launcher).partition("error: ")[2].splitlines()[0]
    assert "saves FAILED" in first_line(house, "limited")
    assert problems(run.checkpoint(steps_saved(run)[-1])) == []
    assert list(run.checkpoints.glob(".*")) == []


def limited_python(house: House) -> Path:
    """An interpreter whose processes may write files of FILE_BYTES at most."""
    code = (
        f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_BYTES}, resource.RLIM_INFINITY))"
    )
    path = house.dir / "python"
    path.write_text(f"#!{sys.executable}\n{code}\nos.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])\n")
    path.chmod(0o755)
    return path


def test_on_a_full_disk_training_goes_on_until_there_is_space_again(house: House, mounts: Mounts) -> None:
    run = house.run("full")
    run.dir.parent.mkdir()
    mounts.mount(run.dir.parent, "-t", "tmpfs", "-o", "size=8m", "tmpfs")
    launcher = house.train("full", ENDLESS)
    wait_for(lambda: len(events(run, 1, "saved")) >= 2)
    ballast = run.dir.parent / "ballast"
    while not saves_failed(run, 2):  # what a save deletes is taken, too
        fill(ballast, leave=256 * 1024)
        time.sleep(0.01)
    assert "saves FAILED" in first_line(house, "full")
    assert "(ENOSPC)" in events(run, 1, "save_failed")[0]["reason"]
    good = steps_saved(run)
    assert len(good) == 2
    assert all(problems(run.checkpoint(step)) == [] for step in good)
    ballast.unlink()
    wait_for(lambda: max(steps_saved(run)) > good[-1])
    house.execute("cancel", "full")
    assert launcher.wait(300) == 75
    house.execute("checkpoints", "verify", "full")


def fill(ballast: Path, *, leave: int) -> None:
    """Take all space of the disk but so many bytes."""
    disk = os.statvfs(ballast.parent)
    free = disk.f_bavail * disk.f_frsize
    if free > leave:
        with suppress(OSError), ballast.open("ab", buffering=0) as file:  # a save may take it first
            file.write(bytes(free - leave))


def test_on_a_read_only_directory_it_stops_if_told_so_and_resumes_later(house: House, mounts: Mounts) -> None:
    run = house.run("locked")
    launcher = house.train("locked", ENDLESS, "checkpoint.on_error=stop")
    wait_for(lambda: events(run, 1, "saved"))
    if os.getuid():
        run.checkpoints.chmod(0o555)
    else:  # root writes where it likes: only a mount stops it
        mounts.mount(run.checkpoints, "--bind", str(run.checkpoints))
        mounts.mount(run.checkpoints, "-o", "remount,bind,ro")
    assert launcher.wait(300) == 1
    state = run_state(run)
    assert (state.state, state.attempt) == ("failed", 2), state.reason
    first = house.stderr(launcher).partition("error: ")[2].splitlines()[0]
    assert "SaveError: the checkpoint of step" in first
    assert "(EROFS)" in first or "(EACCES)" in first
    if os.getuid():
        run.checkpoints.chmod(0o755)
    else:
        mounts.unmount_all()
    saved = steps_saved(run)[-1]
    house.execute("resume", "locked", "-s", f"train.stop.steps={saved + 10}")
    assert job(run.attempt(3))["from_step"] == saved
    assert steps_saved(run)[-1] == saved + 10
