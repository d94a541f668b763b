"""Our Kubernetes scheduler over real HTTP, through a kubeconfig, against the stand-in of tests/kube_server.py.

Known faults of torchx's own schedulers for Kubernetes, X.. and K.. by the project's numbering, and where they are held:

    X8 K5       role names make shell variables              test_manifest
    X9 K7 K8    names and labels that are refused            test_manifest
    X10 K11     a dry run asks the cluster                   here, and cli/test_kubernetes
    X11         a dry run changes the app                    here
    X12         TORCHX_* variables                           here
    X13 X17     runs unknown in another shell, or misnamed   here
    X18         secrets in the log or the job                life/test_kubernetes
    X20         no time to save                              test_manifest, life/test_kubernetes
    X22 K9      image, rights, queue, server: raw or silent  test_kube_phases, test_kube_errors, here, cli/
    K1 to K4    no status, no namespace, Completing, gone    test_kube_phases, here
    K6 K10      a failed pod, maxRetry                       test_manifest, life/test_kubernetes
    K12         cancel needs rights that users have not      here: the Role of docs/kubernetes.md is enough

The rest has no code path in ours. X16: pods have addresses of their own, and the port is the profile's (`port`).
X21, X23: nothing of the caller's folder is copied or remembered. Volcano's lost pod logs (volcano#1651): runs keep
their logs on the volume, and copies of runs what was heard. Its maxRetry that is not kept, and pods left over when it
is reached (#1688, #1718, #3967): the node process counts attempts, and Volcano never reaches its own limit.
"""

import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx.runner import Runner
from torchx.schedulers.api import DescribeAppResponse
from torchx.specs import AppState

from dlrmx import __version__
from dlrmx.errors import ClusterError, InputError, Unanswered
from dlrmx.launch.app import app_def
from dlrmx.launch.job import JobSpec
from dlrmx.launch.kube_api import KubeApi, connect
from dlrmx.launch.kube_errors import refusal
from dlrmx.launch.kubernetes import KubernetesOpts, KubernetesScheduler, jobs_path, kubernetes_scheduler
from dlrmx.launch.manifest import App
from dlrmx.recipe.profiles import KubernetesProfile
from fake_job import wait_for
from kube_lab import volcano_schema
from kube_server import COMMANDS, EVENTS, JOBS, PODS, SERVICES, VOLCANO_JOBS, Cluster, Object, serving, write_kubeconfig

PROFILE: dict[str, Any] = {"scheduler": "kubernetes", "image": "dlrmx:test", "nodes": 2, "root": "/runs"}
PROFILE["volumes"] = {"runs": {"claim": "runs", "mount": "/runs"}}
KINDS = ("volcano", "job")
Submit = Callable[..., str]
Answering = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answering:
    """A server that answers everything alike."""

    @contextmanager
    def serve(*, body: bytes, status: int = 200, length: int | None = None) -> Iterator[None]:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Nothing on stderr."""

            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                self.wfile.write(body)

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
            yield
            server.shutdown()

    return serve


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster that runs nothing: tests set what its controllers would."""
    found = Cluster(schema=volcano_schema())
    with serving(found) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield found


def spec_of(profile: KubernetesProfile, run: str = "ctr-1") -> JobSpec:
    return JobSpec(__version__, run, profile.root, "name: ctr\n", profile.model_dump(mode="json"))


def profile_of(**changes: Any) -> KubernetesProfile:
    return KubernetesProfile.model_validate({**PROFILE, **changes})


def submit(run: str = "ctr-1", **changes: Any) -> str:
    profile = profile_of(**changes)
    with Runner("dlrmx", {"kubernetes": kubernetes_scheduler}) as runner:
        info = runner.dryrun(app_def(spec_of(profile, run), profile), "kubernetes", {})
        app: str = runner.schedule(info)
        return app.rpartition("/")[2]


def resource_of(kind: str) -> str:
    return VOLCANO_JOBS if kind == "volcano" else JOBS


def scheduler() -> KubernetesScheduler:
    return KubernetesScheduler("another shell")


def state_of(app: str) -> AppState:
    described = scheduler().describe(app)
    assert described
    return described.state


def add_pod(cluster: Cluster, kind: str, number: int, log: bytes = b"", **status: Any) -> str:
    """A pod of run ctr-1, as its controller would make it."""
    name = f"ctr-1-node-{number}" if kind == "volcano" else f"ctr-1-{number}-x7k2p"
    label = "volcano.sh/job-name" if kind == "volcano" else "batch.kubernetes.io/job-name"
    index = {} if kind == "volcano" else {"batch.kubernetes.io/job-completion-index": str(number)}
    metadata = {"name": name, "namespace": "ads", "labels": {label: "ctr-1"}, "annotations": index}
    cluster.put(PODS, {"metadata": metadata, "status": status})
    cluster.write_log("ads", name, log)
    return name


def test_volcanos_schema_is_used_where_it_is_there() -> None:
    if volcano_schema() is None:
        pytest.skip("no volcano-job-crd.yaml (set DLRMX_VOLCANO_CRD)")
    cluster = Cluster(schema=volcano_schema())
    assert cluster.schema
    assert "tasks" in cluster.schema["properties"]["spec"]["properties"]


@pytest.mark.parametrize("kind", KINDS)
def test_submitted_is_what_is_printed(cluster: Cluster, kind: str) -> None:
    app = submit(kind=kind, pod_patch={"metadata": {"annotations": {"a": "b"}}})
    made = cluster.find(resource_of(kind), "ads", "ctr-1")
    assert made
    profile = profile_of(kind=kind, pod_patch={"metadata": {"annotations": {"a": "b"}}})
    info = scheduler().submit_dryrun(app_def(spec_of(profile), profile), KubernetesOpts())
    printed = info.request.objects[-1]
    assert made["spec"] == printed["spec"]
    assert made["metadata"].items() >= printed["metadata"].items()
    assert "TORCHX" not in str(printed)
    assert App.from_id(app) == App(kind, None, None, "ctr-1")
    service = cluster.find(SERVICES, "ads", "ctr-1")
    if kind == "job":
        assert service
        assert service["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"], "it goes with its job"
    else:
        assert service is None, "Volcano makes it"


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_from_its_first_moment_to_its_end(cluster: Cluster, kind: str) -> None:
    app = submit(kind=kind)
    assert state_of(app) == AppState.SUBMITTED, "K1: no status yet"
    assert [one.state for one in scheduler().list({"kind": kind})] == [AppState.SUBMITTED]
    if kind == "volcano":
        steps: list[tuple[Object, AppState]] = [
            ({"state": {"phase": phase}}, state)
            for phase, state in (
                ("Pending", AppState.PENDING),
                ("Running", AppState.RUNNING),
                ("Restarting", AppState.PENDING),
                ("Completing", AppState.RUNNING),
                ("Completed", AppState.SUCCEEDED),
                ("Failed", AppState.FAILED),
                ("Aborted", AppState.CANCELLED),
            )
        ]
    else:
        steps = [({"active": 2}, AppState.PENDING)]
        for condition, state in (("Complete", "SUCCEEDED"), ("Failed", "FAILED"), ("Suspended", "CANCELLED")):
            steps.append(({"conditions": [{"type": condition, "status": "True"}]}, AppState[state]))
    for status, state in steps:
        cluster.update(resource_of(kind), "ads", "ctr-1", {"status": status})
        assert state_of(app) == state
        assert [(one.name, one.state) for one in scheduler().list({"kind": kind})] == [("ctr-1", state)]


@pytest.mark.parametrize("kind", KINDS)
def test_k4_a_job_that_is_gone_is_no_error(cluster: Cluster, kind: str) -> None:
    app = submit(kind=kind)
    cluster.remove(resource_of(kind), "ads", "ctr-1")
    assert scheduler().describe(app) is None
    scheduler().cancel(app)
    assert list(scheduler().log_iter(app, "node")) == []
    assert cluster.find(SERVICES, "ads", "ctr-1") is None


def test_k2_a_context_without_a_namespace_means_default(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(cluster) as url:
        write_kubeconfig(tmp_path / "other", url, namespace=None)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other"))
        submit()
        assert cluster.find(VOLCANO_JOBS, "default", "ctr-1")
        assert [one.name for one in scheduler().list({})] == ["ctr-1"]
        submit(run="ctr-2", namespace="ads")
        assert cluster.find(VOLCANO_JOBS, "ads", "ctr-2"), "the profile's comes first"
        submit(run="ctr-3", context="lab")
        with pytest.raises(ClusterError, match="nowhere"):
            submit(run="ctr-4", context="nowhere")


def test_x13_runs_are_known_from_any_shell(cluster: Cluster) -> None:
    submit(run="CTR_v2.1")
    submit(run="ctr-2")
    cluster.put(VOLCANO_JOBS, {"metadata": {"name": "somebody-elses", "namespace": "ads"}})
    assert {one.name for one in scheduler().list({})} == {"CTR_v2.1", "ctr-2"}, "X17: by the run's own name"


def test_x12_variables_of_torchx_change_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from dlrmx.launch.submit import dry_run_text

    monkeypatch.setenv("TORCHX_SESSION_NAME", "broken")
    monkeypatch.delenv("KUBECONFIG")
    profile = profile_of()
    text = dry_run_text(spec_of(profile), profile)
    assert text.startswith("# Run ctr-1, ")
    assert "TORCHX" not in text
    assert cluster.requests == [], "X10, K11: nothing is asked of a cluster"


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_has_ended_makes_room_for_its_runs_next(cluster: Cluster, kind: str) -> None:
    submit(kind=kind)
    before = cluster.find(resource_of(kind), "ads", "ctr-1")
    with pytest.raises(InputError, match=r"run ctr-1 is live \(submitted\)"):
        submit(kind=kind)
    ended = {"state": {"phase": "Aborted"}, "conditions": [{"type": "Failed", "status": "True"}]}
    cluster.update(resource_of(kind), "ads", "ctr-1", {"status": ended})
    assert state_of(submit(kind=kind)) == AppState.SUBMITTED
    after = cluster.find(resource_of(kind), "ads", "ctr-1")
    assert before
    assert after
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_a_cancelled_volcano_job_is_aborted_and_stays(cluster: Cluster) -> None:
    app = submit()
    scheduler().cancel(app)
    (order,) = cluster.list(COMMANDS, "ads")
    job = cluster.find(VOLCANO_JOBS, "ads", "ctr-1")
    assert job
    assert order["action"] == "AbortJob"
    assert (order["target"]["name"], order["target"]["uid"]) == ("ctr-1", job["metadata"]["uid"])
    cluster.update(VOLCANO_JOBS, "ads", "ctr-1", {"status": {"state": {"phase": "Aborted"}}})
    scheduler().cancel(app)
    assert len(cluster.list(COMMANDS, "ads")) == 1, "one that has ended is left alone"


def test_a_cancelled_indexed_job_is_suspended_and_stays(cluster: Cluster) -> None:
    scheduler().cancel(submit(kind="job"))
    job = cluster.find(JOBS, "ads", "ctr-1")
    assert job
    assert job["spec"]["suspend"] is True


def test_a_job_whose_service_is_refused_does_not_stay(cluster: Cluster) -> None:
    """Its pods would look for each other by a name that is not there."""
    cluster.rights = {"admin": {"create jobs.batch", "get jobs.batch", "delete jobs.batch"}}
    with pytest.raises(ClusterError, match="may not create services"):
        submit(kind="job")
    assert cluster.list(JOBS, "ads") == []


@pytest.mark.parametrize("kind", KINDS)
def test_logs_of_a_node(cluster: Cluster, kind: str) -> None:
    app = submit(kind=kind)
    add_pod(cluster, kind, 0, "one\nzwei ü\n".encode(), phase="Running")
    add_pod(cluster, kind, 1, b"other\nunfinished", phase="Running")
    assert list(scheduler().log_iter(app, "node")) == ["one\n", "zwei ü\n"]
    assert list(scheduler().log_iter(app, "node", 1)) == ["other\n", "unfinished"]
    assert list(scheduler().log_iter(app, "node", regex="zw")) == ["zwei ü\n"]
    assert list(scheduler().log_iter(app, "node", 2)) == []
    add_pod(cluster, kind, 3, phase="Pending")
    assert list(scheduler().log_iter(app, "node", 3)) == [], "its container has not begun"


def test_a_log_is_followed_to_its_end(cluster: Cluster) -> None:
    app = submit()
    name = add_pod(cluster, "volcano", 0, b"one\n", phase="Running")
    lines = iter(scheduler().log_iter(app, "node", should_tail=True))
    assert next(lines) == "one\n"
    cluster.write_log("ads", name, b"two\n")
    assert next(lines) == "two\n"
    cluster.write_log("ads", name, b"last")
    cluster.update(PODS, "ads", name, {"status": {"phase": "Succeeded"}})
    assert list(lines) == ["last"]


def test_x22_a_job_that_waits_says_for_what(cluster: Cluster) -> None:
    app = submit()
    cluster.update(VOLCANO_JOBS, "ads", "ctr-1", {"status": {"state": {"phase": "Pending"}}})
    event = {"involvedObject": {"kind": "Job", "name": "ctr-1"}, "type": "Warning", "message": "no account trainer"}
    cluster.put(EVENTS, {"metadata": {"name": "e1", "namespace": "ads"}, **event})
    described = scheduler().describe(app)
    assert described
    assert described.msg == "no pods can be made: no account trainer"
    waiting = {"name": "node", "image": "x", "state": {"waiting": {"reason": "ErrImagePull", "message": "denied"}}}
    add_pod(cluster, "volcano", 0, phase="Pending", containerStatuses=[waiting])
    described = scheduler().describe(app)
    assert described
    assert described.msg == "image x cannot be pulled (ErrImagePull): denied"


@pytest.mark.parametrize("kind", KINDS)
def test_k9_what_is_missing_is_named(cluster: Cluster, kind: str) -> None:
    cluster.rights["admin"] = {f"create {resource_of(kind)}"}
    with pytest.raises(ClusterError, match="admin may not get jobs in namespace ads") as refused:
        submit(kind=kind)
    assert "docs/kubernetes.md" in refused.value.hint
    cluster.rights["admin"] = None
    with pytest.raises(ClusterError, match='no namespace "nobody"'):
        submit(kind=kind, namespace="nobody")
    del cluster.rights["admin"]
    with pytest.raises(ClusterError, match="does not know who you are"):
        submit(kind=kind)


def test_what_volcano_refuses_is_said_plainly(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match='no Volcano queue "big"'):
        submit(queue="big")
    unknown = {"spec": {"priorty": 1}}
    if cluster.schema is not None:
        with pytest.raises(ClusterError, match='unknown field "priorty"'):
            submit(pod_patch=unknown)
    cluster.volcano = False
    with pytest.raises(ClusterError, match="Volcano is not installed"):
        submit()
    submit(kind="job")


def test_a_user_with_the_documented_role_can_do_everything(cluster: Cluster) -> None:
    """The rights of docs/kubernetes.md, and no others: submit, look, read logs, cancel, submit again."""
    import yaml

    text = (Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md").read_text()
    role = next(yaml.safe_load_all(text.partition("```yaml role\n")[2].partition("```")[0]))
    rights = set()
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                full = f"{resource}.{group}" if group else resource
                rights |= {f"{verb} {full}" for verb in rule["verbs"]}
    cluster.rights["admin"] = rights
    for kind in KINDS:
        app = submit(kind=kind)
        add_pod(cluster, kind, 0, b"one\n", phase="Running")
        assert list(scheduler().log_iter(app, "node")) == ["one\n"]
        scheduler().list({"kind": kind})
        scheduler().cancel(app)
        ended = {"state": {"phase": "Aborted"}, "conditions": [{"type": "Suspended", "status": "True"}]}
        cluster.update(resource_of(kind), "ads", "ctr-1", {"status": ended})
        submit(kind=kind)
        state_of(app)


def test_no_kubeconfig_and_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="no Kubernetes cluster can be told from") as refused:
        submit()
    assert refused.value.exit_code == 3
    write_kubeconfig(tmp_path / "dead", "http://127.0.0.1:1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "dead"))
    began = time.monotonic()
    with redirect_stderr(io.StringIO()) as said, pytest.raises(ClusterError, match="cannot be reached"):
        submit()
    assert said.getvalue() == "", "no library's warnings about its retries"
    assert time.monotonic() - began < 5
    (tmp_path / "broken").write_text("a: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    with pytest.raises(ClusterError, match="no Kubernetes cluster"):
        submit()


def test_in_a_cluster_its_own_server_is_used(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's service account: host and port from the environment, token, certificate and namespace from files."""
    from kubernetes.config import incluster_config

    from dlrmx.launch import kube_api

    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, value in (("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("KUBERNETES_SERVICE_PORT", "443")):
        monkeypatch.setenv(variable, value)
    for name, text in (("token", "pod-token"), ("ca.crt", "certificate"), ("namespace", "team")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(kube_api, "IN_CLUSTER_NAMESPACE", tmp_path / "namespace")
    api = kube_api.connect(None, None)
    assert api.namespace == "team"
    assert api._client.configuration.host == "https://10.0.0.1:443"


def test_the_client_library_is_loaded_late() -> None:
    code = "import sys, dlrmx.launch.submit, dlrmx.launch.kubernetes; print('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_dry_run_leaves_the_app_as_it_was(cluster: Cluster) -> None:
    profile = profile_of()
    app = app_def(spec_of(profile), profile)
    before = repr(app)
    scheduler().submit_dryrun(app, KubernetesOpts())
    assert repr(app) == before


def test_app_ids_carry_all_that_is_needed() -> None:
    app = App("job", "arn:aws:eks/x y", None, "ctr-1")
    assert App.from_id(app.id) == app
    assert "/" not in app.id
    assert App.of_run("ctr-1", profile_of(namespace="a")) == replace(app, kind="volcano", context=None, namespace="a")


@pytest.mark.skipif("DLRMX_TEST_KUBECONFIG" not in os.environ, reason="no real cluster (set DLRMX_TEST_KUBECONFIG)")
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_real_cluster(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the kubeconfig's current context: a job without an image waits, says so, is cancelled and deleted."""
    monkeypatch.setenv("KUBECONFIG", os.environ["DLRMX_TEST_KUBECONFIG"])
    run = f"dlrmx-test-{os.urandom(3).hex()}"
    changes: dict[str, Any] = {"kind": kind, "nodes": 1, "volumes": {}, "image": "registry.invalid/none:1"}
    try:
        app = submit(run=run, **changes)
    except ClusterError as error:
        if kind == "job" or "Volcano is not installed" not in error.what:
            raise
        pytest.skip("no Volcano in this cluster")
    api = connect(None, None)
    path = f"{jobs_path(kind, api)}/{App.from_id(app).name}"
    try:
        wait_for(lambda: "cannot be pulled" in (scheduler().describe(app) or DescribeAppResponse()).msg)
        assert run in [one.name for one in scheduler().list({"kind": kind})]
        scheduler().cancel(app)
        wait_for(lambda: state_of(app) == AppState.CANCELLED)
    finally:
        api.delete(path)
    wait_for(lambda: api.find(path) is None)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"body": b"<html>Please log in</html>"}, "is cut off or no JSON"),
        ({"body": b"[]"}, "is no object of Kubernetes"),
        ({"body": b"null"}, "is no object of Kubernetes"),
        ({"body": b'{"kind": "Lis'}, "is cut off or no JSON"),
        ({"body": b'{"kind": "List"}', "length": 400}, "is cut off or no JSON"),
        ({"body": b"", "status": 302}, "sends us elsewhere"),
        ({"body": b"slow down", "status": 429}, "too much to do"),
    ],
)
def test_an_answer_that_is_none_is_told(how: dict[str, Any], told: str, tmp_path: Path, answering: Answering) -> None:
    """As of a proxy, a login page, a connection that breaks."""
    with answering(**how):
        for ask in (lambda: scheduler().list({}), lambda: scheduler().describe("volcano:::x")):
            with pytest.raises(ClusterError, match=told) as refused:
                ask()
            assert not isinstance(refused.value, Unanswered)


@pytest.mark.parametrize("trouble", ["504", "lost"])
def test_a_job_that_was_made_is_found_though_its_answer_is_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    create = KubeApi.create

    def lost(api: KubeApi, path: str, body: Object) -> Object:
        create(api, path, body)
        if trouble == "lost":
            raise Unanswered("cannot be reached: read timed out")
        raise refusal(504, "request did not complete within requested timeout", "POST", path)

    monkeypatch.setattr(KubeApi, "create", lost)
    assert App.from_id(submit()).name == "ctr-1"
    monkeypatch.setattr(KubeApi, "find", lambda api, path: None)
    monkeypatch.setattr(KubeApi, "create", lambda api, path, body: lost(api, path, {**body, "metadata": {"name": "x"}}))
    with pytest.raises(ClusterError) as refused:
        submit(run="ctr-2")
    assert isinstance(refused.value, Unanswered) == (trouble == "lost")


def test_one_of_two_shells_that_submit_a_name_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    submit()
    monkeypatch.setattr("dlrmx.launch.kubernetes._make_room", lambda api, path, request: None)
    with pytest.raises(InputError, match="there is a job ctr-1 already"):
        submit()


@pytest.mark.parametrize(
    "text", ["- a\n- b\n", "hello", "a: [b", "apiVersion: v1\nkind: Config\ncontexts: null\n", b"\xff\xfe"]
)
def test_a_kubeconfig_that_is_none_is_told(text: str | bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(ClusterError, match="no Kubernetes cluster can be told from"):
        scheduler().list({})


@pytest.mark.parametrize(
    ("command", "told"),
    [(["no-such-plugin"], "No such file"), (["sh", "-c", "echo who are you >&2; exit 3"], "who are you")],
)
def test_a_login_program_that_fails_is_told_in_its_own_words(
    command: list[str], told: str, cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    config = yaml.safe_load(path.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command[0], "args": command[1:]}
    config["users"][0]["user"] = {"exec": {**plugin, "interactiveMode": "Never"}}
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(ClusterError, match=f"the login that .* asks for failed: .*{told}"):
        scheduler().list({})
    assert "ERROR" not in capfd.readouterr().err
