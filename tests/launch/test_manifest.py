"""Kubernetes manifests: golden ones for 4 nodes of 8 GPUs, and what names and values become."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrmx.launch.app import app_def
from dlrmx.launch.job import JobSpec
from dlrmx.launch.manifest import Object, job_name, label_value, objects
from dlrmx.launch.manifest_yaml import manifest_yaml
from dlrmx.recipe.profiles import KubernetesProfile

GOLDEN = Path(__file__).with_name("kubernetes_jobs")
PROFILE: dict[str, Any] = {
    "scheduler": "kubernetes",
    "nodes": 4,
    "gpus": 8,
    "cpus": 96.0,
    "memory_gib": 1_900.0,
    "root": "/runs/ann",
    "image": "registry.example/dlrmx:0.1.0",
    "image_pull_secrets": ["registry"],
    "namespace": "ads",
    "service_account": "trainer",
    "priority_class": "high",
    "node_selector": {"gpu": "h100"},
    "tolerations": [{"key": "nvidia.com/gpu"}],
    "shared_memory_gib": 64.0,
    "volumes": {
        "runs": {"claim": "dlrmx-runs", "mount": "/runs"},
        "data": {"nfs": "filer:/criteo", "mount": "/data", "read_only": True},
    },
    "env": {"NCCL_IB_HCA": "mlx5_0,mlx5_1"},
    "secret_env": {"AWS_SECRET_ACCESS_KEY": {"secret": "s3", "key": "secret-key"}},
    "keep_finished": {"minutes": 1_440.0},
    "pod_patch": {
        "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "rdma-a,rdma-b"}},
        "spec": {
            "containers": [
                {
                    "name": "node",
                    "resources": {"limits": {"rdma/hca": "8"}},
                    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                }
            ]
        },
    },
}


def profile_of(**changes: Any) -> KubernetesProfile:
    return KubernetesProfile.model_validate({**PROFILE, **changes})


def spec_of(run: str = "ctr-1") -> JobSpec:
    return JobSpec(dlrmx="0.1.0", run=run, root="/runs/ann", recipe="name: ctr\n", profile={})


def made(run: str = "ctr-1", **changes: Any) -> list[Object]:
    profile = profile_of(**changes)
    return objects(app_def(spec_of(run), profile), profile)


def pod_of(job: Object) -> Object:
    spec = job["spec"]
    template: Object = spec["template"] if "template" in spec else spec["tasks"][0]["template"]
    return template


def env_of(job: Object) -> dict[str, Any]:
    (container,) = pod_of(job)["spec"]["containers"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize(
    ("name", "changes"), [("volcano", {"kind": "volcano", "queue": "ads"}), ("job", {"kind": "job"})]
)
def test_golden(name: str, changes: dict[str, Any]) -> None:
    """Read the file first, then this test: the file is what a person would submit by hand."""
    text = manifest_yaml(made(**changes), "4 nodes of 8 GPUs")
    assert text == (GOLDEN / f"{name}.yaml").read_text()


def test_what_is_printed_is_what_would_be_sent() -> None:
    hard = {
        "A": "1e3",
        "B": "on",
        "C": "012",
        "D": "a\n  b\t\u2028\x85\\ é \U0001f600 'x' \"y\" # z",
        "E": "",
        "F": "~",
    }
    for kind in ("volcano", "job"):
        sent = made(kind=kind, env=hard)
        text = manifest_yaml(sent, "x")
        assert text.isascii()
        assert list(yaml.safe_load_all(text)) == sent
        # What PyYAML quotes for itself is not what kubectl's reader would take for a number.
        assert 'value: "1e3"' in text
        assert 'value: "012"' in text


@pytest.mark.parametrize("value", ["$(PATH)", "$$(PATH)", "$HOME", "a$", "$$", "$($(A))", "plain"])
def test_variables_arrive_as_they_were_given(value: str) -> None:
    """Kubernetes reads $(NAME) in a value as that variable, and $$ as $."""
    arrived = env_of(made(env={"PATH": "/bin", "X": value})[0])["X"]
    assert expanded(arrived, {"PATH": "/bin", "A": "PATH"}) == value


def expanded(text: str, env: dict[str, str]) -> str:
    """What a kubelet makes of a value: k8s.io/kubernetes third_party/forked/golang/expansion."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def test_the_pods_find_each_other() -> None:
    volcano, (service, indexed) = made()[0], made(kind="job")
    (role,) = volcano["spec"]["tasks"]
    name = volcano["metadata"]["name"]
    # Volcano's svc plugin: pods <job>-<role>-<n> in a service of the job's name.
    assert env_of(volcano)["DLRMX_RENDEZVOUS"] == f"{name}-{role['name']}-0.{name}:29500"
    assert "svc" in volcano["spec"]["plugins"]
    # An Indexed Job's pods have the host name <job>-<n>, in the service that is their subdomain.
    assert env_of(indexed)["DLRMX_RENDEZVOUS"] == "ctr-1-0.ctr-1:29500"
    assert pod_of(indexed)["spec"]["subdomain"] == service["metadata"]["name"] == "ctr-1"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": indexed["metadata"]["name"]}
    assert service["spec"]["publishNotReadyAddresses"], "pods look each other up before they are ready"
    assert JobSpec.from_variable(expanded(env_of(indexed)["DLRMX_JOB"], {})) == spec_of()


def test_k6_a_failed_pod_ends_the_job_and_a_saved_one_begins_it_again() -> None:
    policies = made()[0]["spec"]["policies"]
    assert policies[-1] == {"event": "PodFailed", "action": "TerminateJob"}, "after the exit codes: the first counts"
    assert {"event": "PodEvicted", "action": "RestartJob"} in policies[:-1]
    assert {"exitCode": 75, "action": "RestartJob"} in policies[:-1]
    assert {"exitCode": 76, "action": "AbortJob"} in policies[:-1]
    rules = made(kind="job")[1]["spec"]["podFailurePolicy"]["rules"]
    codes = {rule["action"]: rule["onExitCodes"] for rule in rules if "onExitCodes" in rule}
    assert codes["Ignore"]["values"] == codes["FailJob"]["values"] == [75, 137]
    assert (codes["Ignore"]["operator"], codes["FailJob"]["operator"]) == ("In", "NotIn")
    assert made()[0]["spec"]["minAvailable"] == 4, "all pods start, or none"


def test_k10_restarts_are_not_left_to_a_default() -> None:
    assert made()[0]["spec"]["maxRetry"] > 100
    assert made(kind="job")[1]["spec"]["backoffLimit"] > 100


def test_a_pod_has_time_to_save() -> None:
    for kind in ("volcano", "job"):
        pod = pod_of(made(kind=kind, grace={"minutes": 7.5})[-1])["spec"]
        assert pod["terminationGracePeriodSeconds"] == 450 + 30
        assert pod["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("ctr-1", "ctr-1"),
        ("CTR_v2.1", "ctr-v2-1-"),
        ("9run", "run-9run-"),
        ("a" * 63, "a" * 31 + "-"),
        ("a.-", "a-"),
        ("x" * 31 + "-100000", "x" * 31 + "-100000"),
    ],
)
def test_x9_k7_k8_names_are_valid(run: str, name: str) -> None:
    made_name = job_name(run, "node")
    assert made_name.startswith(name)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", made_name)
    assert len(f"{made_name}node") <= 42
    assert (made_name == run) == (name == run), "a changed name says so by its hash"
    assert job_name(f"{run}0", "node") != made_name
    for kind in ("volcano", "job"):
        for one in made(run, kind=kind):
            assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?", one["metadata"]["labels"]["dlrmx/run"])
            assert one["metadata"]["annotations"]["dlrmx/run"] == run


def test_x8_k5_role_names_make_shell_variables() -> None:
    (role,) = made()[0]["spec"]["tasks"]
    assert re.fullmatch(r"[a-z0-9]+", role["name"])


def test_labels_are_cut_and_cleaned() -> None:
    assert label_value("a b/ü") == "a-b"
    assert label_value("-" * 70) == ""
    assert label_value("x" * 70) == "x" * 63


def test_without_a_volume_the_root_lives_with_the_pod() -> None:
    pod = pod_of(made(volumes={})[0])["spec"]
    assert {"name": "runs", "emptyDir": {}} in pod["volumes"]
    assert {"name": "runs", "mountPath": "/runs/ann"} in pod["containers"][0]["volumeMounts"]
    mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


def test_what_is_not_asked_for_is_not_there() -> None:
    few = KubernetesProfile.model_validate({"scheduler": "kubernetes", "image": "x"})
    text = json.dumps(objects(app_def(spec_of(), few), few))
    for absent in ("queue", "namespace", "nodeSelector", "null", "requests", "ttl", "priority"):
        assert f'"{absent}' not in text
