from pathlib import Path
from typing import Any

import pytest

from dlrmx.launch.agent import AgentEnd
from dlrmx.launch.outcome import note_silent_death, outcome_of
from dlrmx.launch.processes import Worker
from dlrmx.launch.retry import Outcome
from dlrmx.runs.claim import claim_attempt
from dlrmx.runs.events import append_event, read_events
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.records import append_record

# As torch 2.13's torch.distributed.run prints it.
TABLE = """\
Traceback (most recent call last):
  File "train.py", line 1, in <module>
ModuleNotFoundError: No module named 'nothing'
E1130 12:28:57.387000 19277 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "/lib/torch/distributed/run.py", line 995, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_12:28:57
  host      : vm
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 101)
  error_file: <N/A>
"""


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    return claim_attempt(RunPaths(tmp_path))


def failures(attempt: AttemptPaths, *gone: Worker, returncode: int = 1, **end: Any) -> list[tuple[int | None, str]]:
    """(rank, cause) of each `failed` event after a look at how the agent ended."""
    note_silent_death(attempt, AgentEnd(returncode, end.get("ended", "itself"), gone), grace_s=60)
    return [(event["rank"], event["cause"]) for event in read_events(attempt, "failed")]


def worker(rank: int) -> Worker:
    return Worker(rank, 100 + rank, 1)


def fail(attempt: AttemptPaths, rank: int, *, primary: bool) -> None:
    append_event(attempt, "failed", rank=rank, step=5, cause="told", message="", primary=primary, pid=100 + rank)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (-9, "killed"),
        (-15, "killed"),
        (-11, "SIGSEGV"),
        (-6, "SIGABRT"),
        (1, "ModuleNotFoundError: No module named 'nothing'"),
    ],
)
def test_the_exit_code_of_a_silent_worker_tells(attempt: AttemptPaths, code: int, cause: str) -> None:
    attempt.node_log(0).write_text(TABLE.format(code=code))
    assert failures(attempt, worker(1), worker(0)) == [(1, cause)]


def test_a_worker_that_nobody_saw_is_found_in_the_table(attempt: AttemptPaths) -> None:
    attempt.node_log(0).write_text(TABLE.format(code=-11))
    fail(attempt, 0, primary=False)
    assert failures(attempt, worker(0)) == [(0, "told"), (1, "SIGSEGV")]


def test_a_worker_that_nobody_saw_died_before_those_that_were_seen(attempt: AttemptPaths) -> None:
    """The other one was silent, too: it was still starting, and was ended because its peer was dead."""
    attempt.node_log(0).write_text(TABLE.format(code=-9))
    assert failures(attempt, worker(0), ended="worker_died") == [(1, "killed")]


def test_without_a_table_a_silent_worker_was_killed(attempt: AttemptPaths) -> None:
    append_event(attempt, "begin", step=4)
    append_record(attempt, kind="step", step=7)
    assert failures(attempt, worker(2), worker(1), ended="worker_died") == [(2, "killed")]
    assert read_events(attempt, "failed")[0]["step"] == 7


def test_who_told_the_fault_is_believed(attempt: AttemptPaths) -> None:
    attempt.node_log(0).write_text(TABLE.format(code=-9))
    fail(attempt, 0, primary=True)
    assert failures(attempt, worker(1), worker(0)) == [(0, "told")]


def test_all_that_lost_their_peers_need_no_further_word(attempt: AttemptPaths) -> None:
    fail(attempt, 0, primary=False)
    assert failures(attempt, worker(0)) == [(0, "told")]


@pytest.mark.parametrize(
    ("ended", "returncode", "words"),
    [
        ("grace_over", 1, "grace of 60 s"),
        ("killed", 1, "killed on request"),
        ("itself", -9, "torch.distributed.run was killed by SIGKILL"),
        ("itself", 3, "no worker was seen"),
    ],
)
def test_what_no_worker_is_to_blame_for(attempt: AttemptPaths, ended: str, returncode: int, words: str) -> None:
    gone = [worker(0), worker(1)] if returncode != 3 else []
    assert [rank for rank, _ in failures(attempt, *gone, ended=ended, returncode=returncode)] == [None]
    assert words in read_events(attempt, "failed")[0]["message"]


def test_an_outcome_is_read_from_the_events(attempt: AttemptPaths) -> None:
    append_event(attempt, "begin", step=20, epoch=0, row=0, total_steps=90)
    append_event(attempt, "saved", step=20, bytes=0, seconds=0)
    append_record(attempt, kind="step", step=33)
    append_event(attempt, "attempt_ended", outcome="stopped", step=33)
    assert outcome_of(attempt) == Outcome(20, 33, False, None)
    append_event(attempt, "saved", step=30, bytes=0, seconds=0)
    append_event(attempt, "failed", rank=0, step=35, cause="NaN", message="", primary=True)
    assert outcome_of(attempt) == Outcome(20, 35, True, "NaN")


def test_what_came_from_outside_is_no_cause(tmp_path: Path) -> None:
    lost, killed = claim_attempt(RunPaths(tmp_path)), claim_attempt(RunPaths(tmp_path))
    append_event(killed, "failed", rank=0, step=None, cause="killed", message="", primary=True)
    assert outcome_of(lost) == outcome_of(killed) == Outcome(None, None, False, None)
