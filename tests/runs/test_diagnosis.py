import os
import socket
from pathlib import Path
from typing import Any

import pytest

from dlrmx.runs.diagnosis import Cause, first_cause
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import AttemptPaths


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    attempt = AttemptPaths(tmp_path / "0001")
    attempt.dir.mkdir()
    append_event(attempt, "claimed")
    return attempt


def fail(attempt: AttemptPaths, rank: int, *, primary: bool, **fields: Any) -> None:
    append_event(attempt, "failed", rank=rank, step=5, cause=f"cause {rank}", message="why", primary=primary, **fields)


def test_the_fault_comes_before_what_it_did_to_others(attempt: AttemptPaths) -> None:
    fail(attempt, 2, primary=False)
    fail(attempt, 1, primary=True)
    fail(attempt, 0, primary=True)
    assert first_cause(attempt) == Cause(1, socket.gethostname(), 5, "cause 1", "why")


def test_secondary_failures_count_where_there_is_no_other(attempt: AttemptPaths) -> None:
    fail(attempt, 2, primary=False)
    fail(attempt, 1, primary=False)
    cause = first_cause(attempt)
    assert cause
    assert cause.rank == 2


def test_bad_input_keeps_its_exit_code(attempt: AttemptPaths) -> None:
    fail(attempt, 0, primary=True, exit_code=2)
    cause = first_cause(attempt)
    assert cause
    assert cause.exit_code == 2
    assert str(cause) == f"rank 0 on {socket.gethostname()} at step 5: cause 0: why"


def test_an_attempt_without_an_end_is_lost(attempt: AttemptPaths) -> None:
    append_event(attempt, "begin", step=20)
    cause = first_cause(attempt)
    assert cause
    assert (cause.cause, cause.rank, cause.step) == ("lost", None, 20)
    told = (
        f"{socket.gethostname()} at step 20: its node process (pid {os.getpid()}) was killed or its machine went down"
    )
    assert str(cause) == told  # said once


def test_a_worker_killed_from_outside_is_named_once(attempt: AttemptPaths) -> None:
    append_event(attempt, "failed", rank=1, step=9, cause="killed", message="pid 7 was killed by SIGKILL", primary=True)
    assert str(first_cause(attempt)) == f"rank 1 on {socket.gethostname()} at step 9: pid 7 was killed by SIGKILL"


@pytest.mark.parametrize("end", ["attempt_ended", "finished", "stopped"])
def test_an_attempt_that_ended_well_has_no_cause(attempt: AttemptPaths, end: str) -> None:
    append_event(attempt, end, step=3)
    assert first_cause(attempt) is None


def test_an_attempt_without_events_has_no_cause(tmp_path: Path) -> None:
    assert first_cause(AttemptPaths(tmp_path)) is None
