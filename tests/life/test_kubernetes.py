"""Jobs that really run on the stand-in cluster: a pod per node, each the real node process with fake workers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx.runner import Runner

from dlrmx.launch.app import app_def
from dlrmx.launch.inputs import parse_recipe
from dlrmx.launch.kubernetes import KubernetesScheduler, kubernetes_scheduler
from dlrmx.launch.mirror import refresh
from dlrmx.launch.place import free_port
from dlrmx.launch.remote import RemoteJob
from dlrmx.launch.submit import cancel, submit
from dlrmx.recipe.fingerprint import fingerprint
from dlrmx.recipe.profiles import KubernetesProfile
from dlrmx.runs.claim import create_run
from dlrmx.runs.registry import seen_root
from dlrmx.runs.state import run_state
from fake_job import FakeJob, make_job, wait_for
from kube_lab import volcano_schema
from kube_nodes import Nodes, running
from kube_server import JOBS, PODS, VOLCANO_JOBS, Cluster, write_kubeconfig

LONG = {"steps": 100_000, "step_s": 0.05}
KINDS = ("volcano", "job")
RESOURCES = {"volcano": VOLCANO_JOBS, "job": JOBS}


class Lab:
    """The cluster, and jobs of two nodes in it."""

    def __init__(self, folder: Path, cluster: Cluster, nodes: Nodes) -> None:
        self.folder, self.cluster, self.nodes = folder, cluster, nodes

    def job(self, kind: str, fake: dict[str, Any], **changes: Any) -> FakeJob:
        once = ["retry.attempts_without_progress=1"]
        made = make_job(self.folder / "local", {}, run="tiny-1", settings=once)
        profile = {
            "scheduler": "kubernetes",
            "kind": kind,
            "image": "dlrmx:test",
            "nodes": 2,
            "workers_per_node": 1,
            "root": made.profile.root,
            "python": made.profile.python,
            "port": free_port(),
            "volumes": {"runs": {"host_path": str(self.folder), "mount": str(self.folder)}},
            **changes,
        }
        return FakeJob(made.spec, KubernetesProfile.model_validate(profile)).again(fake)

    def submit(self, job: FakeJob) -> str:
        with Runner("dlrmx", {"kubernetes": kubernetes_scheduler}) as runner:
            app: str = runner.schedule(runner.dryrun(app_def(job.spec, job.profile), "kubernetes", {}))
        return app.rpartition("/")[2]

    def state(self, app: str) -> str:
        described = KubernetesScheduler("another shell").describe(app)
        return described.state.name if described else "GONE"

    def reason(self, app: str) -> str:
        described = KubernetesScheduler("another shell").describe(app)
        return described.msg if described else ""

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.cluster.list(PODS, "ads")]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = Cluster(schema=volcano_schema())
    with running(cluster) as (url, nodes):
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield Lab(tmp_path, cluster, nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_two_pods_run_one_job(lab: Lab, kind: str) -> None:
    job = lab.job(kind, {"steps": 3})
    app = lab.submit(job)
    wait_for(lambda: lab.state(app) == "SUCCEEDED")
    state = run_state(job.run)
    assert (state.state, state.attempt) == ("done", 1)
    ranks = {event["rank"] for event in job.events(1, "worker_started")}
    assert ranks == {0, 1}, "one of each pod"


@pytest.mark.parametrize("kind", KINDS)
def test_an_evicted_pod_saves_and_the_job_goes_on(lab: Lab, kind: str) -> None:
    job = lab.job(kind, LONG)
    app = lab.submit(job)
    wait_for(lambda: job.events(1, "step_done") or job.events(1, "begin"))
    lab.nodes.evict(lab.pods()[1])
    wait_for(lambda: job.events(2, "begin"))
    assert job.events(1, "stopped"), "saved, not killed"
    assert job.events(1, "stop_requested")[0]["by"].startswith("SIGTERM")
    assert job.events(2, "begin")[0]["step"] == job.events(1, "stopped")[0]["step"]
    assert lab.state(app) in ("RUNNING", "PENDING")
    KubernetesScheduler("another shell").cancel(app)
    wait_for(lambda: lab.state(app) == "CANCELLED")
    # The node process could not know that this time nobody would start it again.
    wait_for(lambda: run_state(job.run).state == "waiting")
    assert RemoteJob(job.run, app, KubernetesScheduler("another shell")).poll() == 75
    assert run_state(job.run).state == "stopped"


@pytest.mark.parametrize(
    ("kind", "pod"), [("volcano", 0), ("job", 0), pytest.param("volcano", 1, marks=pytest.mark.slow)]
)
def test_a_killed_pod_starts_the_job_again(lab: Lab, kind: str, pod: int) -> None:
    """Pod 0 leads. Where the other one dies, nobody waits for it: the grace here is ten minutes."""
    job = lab.job(kind, {**LONG, "save_every": 10}, grace={"minutes": 10})
    app = lab.submit(job)
    wait_for(lambda: job.events(1, "saved"))
    lab.nodes.kill(lab.pods()[pod])
    wait_for(lambda: job.events(2, "begin"))
    assert lab.state(app) in ("RUNNING", "PENDING")
    assert pod == 1 or not job.events(1, "stopped")
    KubernetesScheduler("another shell").cancel(app)
    wait_for(lambda: lab.state(app) == "CANCELLED")


def test_a_run_out_of_sight_is_stopped_and_heard_out(lab: Lab) -> None:
    job = lab.job("volcano", LONG)
    fixed = fingerprint(parse_recipe(job.spec.recipe))
    copy = create_run(seen_root(job.profile), "tiny", job.spec.run, fixed)
    assert copy != job.run
    submit(job.spec, job.profile, attached=False)
    wait_for(lambda: job.events(1, "begin"))
    refresh(copy)
    assert run_state(copy).state == "running"
    assert cancel(copy) == "stops"
    state = run_state(copy)
    assert (state.state, state.is_copy) == ("stopped", True)
    assert state.checkpoint == job.events(1, "stopped")[0]["step"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_fails_ends_its_job(lab: Lab, kind: str) -> None:
    """K6: it does not run on for ever."""
    job = lab.job(kind, {"faults": [{"rank": 0, "step": 2, "how": "raise"}]})
    app = lab.submit(job)
    wait_for(lambda: lab.state(app) == "FAILED")
    assert run_state(job.run).state == "failed"
    assert "exit code 1" in lab.reason(app)


def test_a_missing_image_is_told_and_cancelled(lab: Lab) -> None:
    app = lab.submit(lab.job("volcano", {}, image="nowhere:1"))
    wait_for(lambda: "image nowhere:1 cannot be pulled (ErrImagePull)" in lab.reason(app))
    assert lab.state(app) == "PENDING"
    KubernetesScheduler("another shell").cancel(app)
    wait_for(lambda: lab.state(app) == "CANCELLED")


def test_secrets_and_values_arrive_unchanged(lab: Lab) -> None:
    hard = 'a $(PATH) $$ "b", c\nd \U0001f600'
    secret = {"TOKEN": {"secret": "s3", "key": "token"}}
    job = lab.job("volcano", {"steps": 1}, secret_env=secret, env={"FAKE": "{}", "HARD": hard})
    app = lab.submit(job)
    wait_for(lambda: 'secret "s3" not found' in lab.reason(app))
    lab.cluster.secrets["s3"] = {"token": "hidden"}
    wait_for(lambda: lab.state(app) == "SUCCEEDED")
    assert "hidden" not in json.dumps(lab.cluster.list(VOLCANO_JOBS, "ads"))
    assert os.environ.get("TOKEN") is None
