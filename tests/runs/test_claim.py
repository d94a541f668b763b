import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from dlrmx import __version__
from dlrmx.errors import InputError
from dlrmx.runs import claim
from dlrmx.runs.claim import claim_attempt, create_run, hold, is_live, next_name, request_stop, stop_run
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import read_run, update_run

HOLDER = """
import sys, time
from pathlib import Path
from dlrmx.runs.claim import hold
from dlrmx.runs.layout import RunPaths
with hold(RunPaths(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return create_run(tmp_path, "ctr", None, "f" * 12)


@pytest.fixture
def holder(run: RunPaths) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(run.dir)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_runs_are_numbered(tmp_path: Path) -> None:
    assert next_name(tmp_path, "ctr") == "ctr-1"
    for name in ("ctr-9", "ctr-10", "ctr-x", "ctr", "other-70", "my-ctr-80"):
        (tmp_path / name).mkdir()
    assert next_name(tmp_path, "ctr") == "ctr-11"
    assert create_run(tmp_path, "ctr", None, "f").name == "ctr-11"


def test_runs_are_named_by_the_clock_where_numbers_are_not_known(tmp_path: Path) -> None:
    """Two in one second: the second does not find its generated name taken, as a given one would be."""
    for name in ("ctr-9", "ctr-991231-235959-x"):
        (tmp_path / name).mkdir()
    names = [create_run(tmp_path, "ctr", None, "f", stamp="991231-235959").name for _ in range(3)]
    assert names == ["ctr-991231-235959", "ctr-991231-235959-2", "ctr-991231-235959-3"]
    assert next_name(tmp_path, "ctr", "991231-235959") == "ctr-991231-235959-4"


def test_a_new_run_says_what_it_is(tmp_path: Path) -> None:
    run = create_run(tmp_path / "new" / "root", "ctr", "mine", "abc")
    fields = read_run(run)
    assert fields.pop("created") > 0
    assert fields == {
        "version": 1,
        "name": "mine",
        "recipe": "ctr",
        "fingerprint": "abc",
        "dlrmx": __version__,
        "attempt": 0,
        "state": "created",
    }


def test_a_name_is_given_once(tmp_path: Path) -> None:
    create_run(tmp_path, "ctr", "mine", "f")
    with pytest.raises(InputError, match="dlrmx resume mine"):
        create_run(tmp_path, "ctr", "mine", "f")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "-x", "a" * 64, "a b", "a\n"])
def test_unfit_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot name a run"):
        create_run(tmp_path, "ctr", name, "f")


def test_a_root_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cluster profile"):
        create_run(tmp_path / "file" / "root", "ctr", None, "f")


def test_twenty_at_once_get_twenty_runs_and_attempts(tmp_path: Path) -> None:
    with ThreadPool(20) as pool:
        runs = pool.map(lambda _: create_run(tmp_path, "ctr", None, "f").name, range(20))
        assert sorted(runs) == sorted(f"ctr-{n}" for n in range(1, 21))
        stamped = pool.map(lambda _: create_run(tmp_path, "ctr", None, "f", stamp="now").name, range(20))
        assert sorted(stamped) == sorted(["ctr-now", *(f"ctr-now-{n}" for n in range(2, 21))])
        numbers = pool.map(lambda _: claim_attempt(RunPaths(tmp_path / "ctr-1")).number, range(20))
    assert sorted(numbers) == list(range(1, 21))


def test_an_attempt_is_claimed_with_its_folders(run: RunPaths) -> None:
    first, second = claim_attempt(run), claim_attempt(run)
    assert (first.number, second.number) == (1, 2)
    assert second.logs.is_dir()
    assert [event["event"] for event in read_events(second)] == ["claimed"]


def test_the_second_holder_is_refused_with_the_firsts_pid_and_host(
    run: RunPaths, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "LOCK_PATIENCE_S", 0.2)
    assert is_live(run)
    with pytest.raises(InputError, match=f"already running: pid {holder.pid} on {socket.gethostname()}"):
        with hold(run):
            pytest.fail("held twice")


def test_a_killed_holder_leaves_no_lock(run: RunPaths, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not is_live(run)
    with hold(run):
        assert json.loads(run.lock.read_text())["pid"] == os.getpid()


def test_a_reader_that_looks_does_not_get_a_holder_refused(run: RunPaths) -> None:
    run.lock.touch()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            is_live(run)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(20):
            with hold(run):
                pass
    finally:
        done.set()
        for reader in readers:
            reader.join()


def test_children_do_not_inherit_the_lock(run: RunPaths) -> None:
    with hold(run):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not is_live(run)
    finally:
        child.kill()
        child.wait()


def test_a_stop_is_asked_once(run: RunPaths) -> None:
    attempt = claim_attempt(run)
    assert request_stop(attempt, "SIGTERM")
    assert not request_stop(attempt, "SIGINT")
    assert attempt.stop_request.read_text() == "SIGTERM\n"
    assert [event["by"] for event in read_events(attempt, "stop_requested")] == ["SIGTERM"]


def test_only_a_running_run_is_stopped(run: RunPaths) -> None:
    attempt = claim_attempt(run)
    update_run(run, state="running", attempt=1)
    with pytest.raises(InputError, match="is not running"):
        stop_run(run, "me")
    assert not attempt.stop_request.exists()
    with hold(run):
        assert stop_run(run, "me") == attempt
    assert attempt.stop_request.exists()


def test_a_stop_reaches_the_attempt_that_opens_meanwhile(run: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = claim_attempt(run), claim_attempt(run)
    update_run(run, state="running", attempt=1)

    def retried_meanwhile(attempt: object, by: str) -> bool:
        update_run(run, attempt=2)
        return request_stop(attempt, by)  # type: ignore[arg-type]

    monkeypatch.setattr(claim, "request_stop", retried_meanwhile)
    with hold(run):
        assert stop_run(run, "me") == second
    assert first.stop_request.exists()
    assert second.stop_request.exists()
