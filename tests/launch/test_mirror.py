"""A copy of a run out of sight, while what it is heard through fails."""

import errno
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers.api import DescribeAppResponse
from torchx.specs import AppState

from dlrmx.errors import ClusterError
from dlrmx.launch import mirror
from dlrmx.launch.mirror import mirrored, refresh
from dlrmx.launch.remote import RemoteJob
from dlrmx.runs.claim import create_run, note_copy
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import read_run, update_run
from fake_job import wait_for


class Pods:
    """A cluster whose job runs, with the log that a test wants: lines, or what is raised in their place."""

    state = AppState.RUNNING
    log: Any = ()

    def __init__(self, session: str) -> None:
        pass

    def describe(self, app: str) -> DescribeAppResponse:
        return DescribeAppResponse(app, self.state, msg="")

    def log_iter(self, app: str, role: str, node: int, should_tail: bool) -> Iterator[str]:
        if isinstance(self.log, Exception):
            raise self.log
        yield from self.log


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Pods]]:
    monkeypatch.setattr(mirror, "KubernetesScheduler", Pods)
    monkeypatch.setattr(mirror, "AGAIN_S", 0.01)
    yield Pods
    Pods.state, Pods.log = AppState.RUNNING, ()


@pytest.fixture
def copy(tmp_path: Path) -> RunPaths:
    run = create_run(tmp_path, "ctr", None, "f")
    update_run(run, job={"scheduler": "kubernetes", "app": "volcano:::ctr-1"})
    note_copy(run, live=True)
    return run


@pytest.mark.parametrize("why", [ClusterError("me may not get pods/log"), OSError(errno.ENOSPC, "No space left")])
def test_why_nothing_is_heard_is_said_once(pods: type[Pods], copy: RunPaths, why: Exception) -> None:
    pods.log = why
    said: list[str] = []
    with mirrored(copy, said.append):
        wait_for(lambda: said)
        time.sleep(0.2)
    assert len(said) == 1
    assert str(why) in said[0]


def test_ten_megabytes_of_other_lines_are_no_burden(pods: type[Pods], copy: RunPaths) -> None:
    pods.log = ["x" * 99 + "\n"] * 100_000
    began = time.monotonic()
    refresh(copy)
    refresh(copy)
    assert time.monotonic() < began + 60
    assert copy.launch_log.stat().st_size == 10_000_000, "heard anew, not behind what was heard before"


@pytest.mark.parametrize(("state", "code", "ended"), [(AppState.SUCCEEDED, 0, "done"), (AppState.FAILED, 1, "failed")])
def test_the_exit_code_is_the_jobs_though_its_last_words_are_not_heard(
    pods: type[Pods], copy: RunPaths, state: AppState, code: int, ended: str
) -> None:
    pods.log, pods.state = ClusterError("dial tcp 10.0.0.1:10250: connection refused"), state
    job = RemoteJob(copy, "volcano:::ctr-1", Pods(""))
    assert job.poll() == code
    assert "connection refused" in job.words
    assert read_run(copy)["state"] == ended
