"""Errands on a cluster: what nodes printed comes back, and an interrupted one leaves no job behind."""

from pathlib import Path

import pytest
from torchx.schedulers.api import DescribeAppResponse
from torchx.specs import AppState

from dlrmx.errors import ClusterError
from dlrmx.launch import errand
from dlrmx.launch.errand import NAME, errand_spec, run_errand
from fake_job import wait_for
from kube_lab import pod_profile, volcano_schema
from kube_nodes import running
from kube_server import VOLCANO_JOBS, Cluster, write_kubeconfig


def phases(cluster: Cluster) -> dict[str, str]:
    return {job["metadata"]["name"][:3]: job["status"]["state"]["phase"] for job in cluster.list(VOLCANO_JOBS, "ads")}


def test_errands_are_told_from_runs_by_their_names(tmp_path: Path) -> None:
    profile = pod_profile(tmp_path)
    assert NAME.fullmatch(errand_spec("doctor", profile).run)
    assert NAME.fullmatch(errand_spec("measure", profile).run)
    assert not NAME.fullmatch("doctor-261130-223306"), "a run of a recipe doctor, named by the clock"


def test_what_all_nodes_print_comes_back_and_an_interrupt_takes_the_job_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, said = Cluster(schema=volcano_schema()), list[str]()
    profile = pod_profile(tmp_path / "runs")

    def interrupt(words: str) -> None:
        said.append(words)
        if "running" in words:
            raise KeyboardInterrupt

    with running(cluster) as (url, _):
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        text = run_errand(errand_spec("doctor", profile), profile, ("-c", "print('here', 6 * 7)"), said.append)
        assert text.splitlines() == ["here 42", "here 42"]
        with pytest.raises(KeyboardInterrupt):
            run_errand(errand_spec("measure", profile), profile, ("-c", "import time; time.sleep(600)"), interrupt)
        wait_for(lambda: phases(cluster)["mea"] in ("Aborting", "Aborted"))
        assert phases(cluster)["doc"] == "Completed"
    assert said[-1].endswith("is taken back")


class Says:
    """A scheduler that says one thing after the other, the last for ever."""

    def __init__(self, *says: DescribeAppResponse | ClusterError | None) -> None:
        self.says, self.cancelled = list(says), list[str]()

    def describe(self, job: str) -> DescribeAppResponse | None:
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, ClusterError):
            raise said
        return said

    def cancel(self, job: str) -> None:
        self.cancelled.append(job)


def test_a_scheduler_that_is_away_for_a_moment_ends_no_errand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errand, "LOOK_S", 0.0)
    said = list[str]()
    failed = DescribeAppResponse("7", AppState.FAILED, msg="FAILED: its node cannot write the run's folder")
    scheduler = Says(None, ClusterError("it does not answer"), failed)
    assert errand._wait(scheduler, "7", said.append) == "failed FAILED: its node cannot write the run's folder"
    assert said == ["job 7: it does not answer"]


@pytest.mark.parametrize(("says", "patience"), [(None, "UNKNOWN_S"), (ClusterError("down"), "UNREACHABLE_S")])
def test_a_job_that_is_gone_is_not_waited_for(
    says: ClusterError | None, patience: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errand, "LOOK_S", 0.0)
    monkeypatch.setattr(errand, patience, 0.05)
    scheduler = Says(DescribeAppResponse("7", AppState.PENDING, msg=""), says)
    with pytest.raises(ClusterError, match="job 7 is not heard of any more"):
        errand._wait(scheduler, "7", lambda _: None)
    assert scheduler.cancelled == ["7"]
