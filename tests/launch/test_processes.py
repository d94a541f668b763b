import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dlrmx.launch.processes import NOT_SEEN, is_alive, kill_group, workers_of

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEP, env={**os.environ, "RANK": "3"}, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_workers_are_the_children_with_a_rank(worker: subprocess.Popen[bytes]) -> None:
    other = subprocess.Popen(SLEEP, env={name: value for name, value in os.environ.items() if name != "RANK"})
    try:
        (found,) = workers_of(os.getpid())
    finally:
        other.kill()
        other.wait()
    assert (found.rank, found.pid) == (3, worker.pid)
    assert workers_of(worker.pid) == []


def test_alive_means_this_very_process(worker: subprocess.Popen[bytes]) -> None:
    (found,) = workers_of(os.getpid())
    assert is_alive(found)
    assert not is_alive(replace(found, started=found.started + 1)), "the pid was given to another"
    assert not is_alive(replace(found, started=NOT_SEEN))
    kill_group(worker.pid)
    time.sleep(0.2)
    assert not is_alive(found), "a zombie"
    worker.wait()
    assert not is_alive(found)
    kill_group(worker.pid)


PARENT = """
import subprocess, sys, time
from dlrmx.launch.processes import die_with_parent
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], preexec_fn=die_with_parent(),
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_ignores_sigterm_and_dies_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        os.kill(child, signal.SIGTERM)
        time.sleep(0.2)
        with open(f"/proc/{child}/stat") as file:
            assert file.read().rpartition(")")[2].split()[0] in "SR"
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 5
    while _running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _running(child)


def _running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
