"""A cluster's job as its run tells it: exit codes, ends that nobody there could write down, clusters out of reach."""

from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers.api import DescribeAppResponse
from torchx.specs import AppState

from dlrmx.errors import ClusterError
from dlrmx.launch import remote
from dlrmx.launch.remote import RemoteJob, job_of
from dlrmx.runs.claim import claim_attempt, create_run, hold
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import read_run, update_run


class Cluster:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.says: DescribeAppResponse | ClusterError | None = None
        self.cancelled: list[str] = []

    def describe(self, app: str) -> DescribeAppResponse | None:
        if isinstance(self.says, ClusterError):
            raise self.says
        return self.says

    def cancel(self, app: str) -> None:
        self.cancelled.append(app)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return create_run(tmp_path, "r", None, "f")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LOOK_S", 0.0)


def says(state: AppState, words: str = "") -> DescribeAppResponse:
    return DescribeAppResponse("7", state, msg=words)


@pytest.mark.parametrize("state", [AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING, AppState.UNKNOWN])
def test_while_it_lives_there_is_no_code(cluster: Cluster, run: RunPaths, state: AppState) -> None:
    """Though the run has stopped: it waits for its next start."""
    update_run(run, state="stopped", exit_code=75)
    cluster.says = says(state, "PENDING: waits for Resources")
    job = RemoteJob(run, "7", cluster)
    assert job.poll() is None
    assert (job.words, job.known) == ("PENDING: waits for Resources", True)


@pytest.mark.parametrize(
    ("state", "fields", "code"),
    [
        (AppState.SUCCEEDED, {"state": "done", "exit_code": 0}, 0),
        (AppState.FAILED, {"state": "failed", "exit_code": 1}, 1),
        (AppState.FAILED, {"state": "failed", "exit_code": 2}, 2),
        (AppState.FAILED, {"state": "stopped", "exit_code": 75}, 75),
        (AppState.CANCELLED, {"state": "stopped", "exit_code": 75}, 75),
    ],
)
def test_the_code_is_the_runs(
    cluster: Cluster, run: RunPaths, state: AppState, fields: dict[str, Any], code: int
) -> None:
    update_run(run, **fields)
    cluster.says = says(state)
    job = RemoteJob(run, "7", cluster)
    assert job.poll() == code
    cluster.says = ClusterError("asked again")
    assert job.poll() == code
    assert read_run(run)["state"] == fields["state"]


@pytest.mark.parametrize("before", ["created", "running"])
@pytest.mark.parametrize(("state", "code"), [(AppState.FAILED, 1), (AppState.CANCELLED, 130)])
def test_an_end_that_the_job_could_not_write_down(
    cluster: Cluster, run: RunPaths, before: str, state: AppState, code: int
) -> None:
    update_run(run, state=before)
    cluster.says = says(state, "TIMEOUT: its time limit was over")
    assert RemoteJob(run, "7", cluster).poll() == code
    fields = read_run(run)
    assert (fields["state"], fields["exit_code"]) == ("failed", code)
    assert fields["reason"] == "job 7: TIMEOUT: its time limit was over"


def test_a_run_that_saved_and_is_not_started_again_has_stopped(cluster: Cluster, run: RunPaths) -> None:
    """scancel has it save, as a preemption does; only Slurm knows which it was."""
    append_event(claim_attempt(run), "stopped", step=7)
    update_run(run, state="created", reason="SIGTERM: it has saved, and waits for its job to be started again")
    cluster.says = says(AppState.CANCELLED, "CANCELLED")
    assert RemoteJob(run, "7", cluster).poll() == 75
    assert (read_run(run)["state"], read_run(run)["exit_code"]) == ("stopped", 75)


def test_a_cluster_out_of_reach_is_asked_again_for_a_while(
    cluster: Cluster, run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.says = ClusterError("the Slurm controller does not answer")
    job = RemoteJob(run, "7", cluster)
    assert job.poll() is None
    assert (job.words, job.known) == ("the Slurm controller does not answer", False)
    monkeypatch.setattr(remote, "UNREACHABLE_S", 0.0)
    with pytest.raises(ClusterError):
        job.poll()


def test_a_job_that_is_not_known_yet_and_one_that_is_forgotten(
    cluster: Cluster, run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurm.md 9."""
    job = RemoteJob(run, "7", cluster)
    assert job.poll() is None
    monkeypatch.setattr(remote, "UNKNOWN_S", 0.0)
    assert job.poll() == 1
    assert read_run(run)["reason"] == "job 7: its scheduler forgot it"


def test_a_live_run_is_asked_to_save_and_one_that_waits_is_cancelled(cluster: Cluster, run: RunPaths) -> None:
    job = RemoteJob(run, "7", cluster)
    job.stop()
    assert cluster.cancelled == ["7"]
    attempt = claim_attempt(run)
    update_run(run, state="running", attempt=1)
    with hold(run):
        job.stop()
    assert attempt.stop_request.exists()
    assert cluster.cancelled == ["7"]


def test_a_run_knows_its_job(run: RunPaths) -> None:
    assert job_of(run) is None
    update_run(run, job={"scheduler": "slurm", "app": "7"})
    assert job_of(run) == {"scheduler": "slurm", "app": "7"}
    update_run(run, job={"scheduler": 3})
    assert job_of(run) is None
    assert job_of(RunPaths(run.dir / "none")) is None
