"""A cluster's job as its run tells it: exit codes, ends that nobody there could write down, clusters out of reach."""

import os
from pathlib import Path
from typing import Any

import pytest
from torchx.schedulers.api import DescribeAppResponse
from torchx.specs import AppState

from dlrmx.errors import ClusterError, InputError
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


@pytest.mark.parametrize(
    ("before", "state", "code"),
    [("created", AppState.FAILED, 1), ("running", AppState.FAILED, 1), ("running", AppState.CANCELLED, 130)],
)
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


def test_a_job_that_is_taken_back_has_stopped_its_run(cluster: Cluster, run: RunPaths) -> None:
    """Nothing of it ran: neither did it fail, nor was anybody killed."""
    cluster.says = says(AppState.CANCELLED, "CANCELLED")
    assert RemoteJob(run, "7", cluster).poll() == 75
    assert read_run(run)["reason"] == "job 7: CANCELLED before it began"
    append_event(claim_attempt(run), "failed", rank=None, step=9, cause="lost", message="node 1", primary=True)
    update_run(run, state="created", exit_code=None, reason="node 1 of 4 was lost")
    assert RemoteJob(run, "7", cluster).poll() == 75
    fields = read_run(run)
    assert (fields["state"], fields["exit_code"]) == ("stopped", 75)
    assert fields["reason"] == "job 7: CANCELLED while it waited"


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


def test_a_job_that_ended_well_elsewhere_is_no_success(
    cluster: Cluster, run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes have another disk of that name; one that is only late to be seen (NFS) is waited for."""
    cluster.says = says(AppState.SUCCEEDED, "COMPLETED")
    job = RemoteJob(run, "7", cluster)
    assert job.poll() is None
    update_run(run, state="done", exit_code=0)
    assert job.poll() == 0
    update_run(run, state="created", exit_code=None)
    job = RemoteJob(run, "7", cluster)
    monkeypatch.setattr(remote, "UNSEEN_S", -1.0)
    with pytest.raises(ClusterError, match="nothing of it is to be seen in .*\n.*`root` must be on a disk"):
        job.poll()
    assert read_run(run)["state"] == "created", "the run's own file may be late"


def test_another_job_of_that_number_is_not_taken_for_the_runs(cluster: Cluster, run: RunPaths) -> None:
    """Another cluster of the same home folder, or one that counts anew."""
    cluster.says = DescribeAppResponse("7", AppState.FAILED, metadata={"name": "somebody-elses"})
    job = RemoteJob(run, "7", cluster)
    assert job.poll() is None
    assert "is somebody-elses here" in job.words
    with pytest.raises(ClusterError, match="is somebody-elses here"):
        job.stop()
    assert cluster.cancelled == []
    assert read_run(run)["state"] == "created"


def test_a_run_whose_files_tell_its_end_has_ended_though_its_scheduler_is_away(cluster: Cluster, run: RunPaths) -> None:
    cluster.says = ClusterError("there is no squeue on this machine")
    job = RemoteJob(run, "7", cluster)
    assert job.poll() is None
    update_run(run, state="failed", exit_code=2)
    assert job.poll() == 2


def test_a_job_whose_submission_was_not_seen_to_its_end_is_looked_for(
    cluster: Cluster, run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(Cluster, "find", lambda self, wanted: found.pop() if found else "", raising=False)
    job = RemoteJob(run, "", cluster)
    assert job.poll() is None
    with pytest.raises(InputError, match="knows no job of run r-1"):
        job.stop()
    found.append("9")
    cluster.says = says(AppState.PENDING, "PENDING")
    assert job.poll() is None
    assert (job.app, job.known) == ("9", True)
    never = RemoteJob(run, "", cluster)
    monkeypatch.setattr(remote, "UNKNOWN_S", 0.0)
    assert never.poll() == 1
    assert read_run(run)["reason"] == "it was never submitted"


def test_a_run_that_was_submitted_long_ago_is_not_waited_for(cluster: Cluster, run: RunPaths) -> None:
    os.utime(run.run, (1.0, 1.0))
    assert RemoteJob(run, "7", cluster).poll() == 1
