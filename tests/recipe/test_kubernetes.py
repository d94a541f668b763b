"""Kubernetes profiles: what is refused before anything is submitted, with its key and a way out."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrmx.errors import InputError
from dlrmx.recipe.clusters import workers_per_node
from dlrmx.recipe.kubernetes import volume_of_root
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.profiles import KubernetesProfile
from fake_job import RECIPE

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "clusters" / "kubernetes.yaml"
RUNS = {"claim": "dlrmx-runs", "mount": "/runs"}
GOOD: dict[str, Any] = {"scheduler": "kubernetes", "image": "x:1", "root": "/runs/me", "volumes": {"runs": RUNS}}


def load(folder: Path, *settings: str, **changes: Any) -> KubernetesProfile:
    (folder / "tiny.yaml").write_text(RECIPE + yaml.safe_dump({"cluster": {**GOOD, **changes}}, sort_keys=False))
    profile = load_recipe(folder / "tiny.yaml", settings).profile
    assert isinstance(profile, KubernetesProfile)
    return profile


def problems(folder: Path, *settings: str, **changes: Any) -> dict[str, str]:
    """What is wrong, by key: text and hint."""
    with pytest.raises(InputError) as refused:
        load(folder, *settings, **changes)
    return {problem.key: f"{problem.what} ({problem.hint})" for problem in refused.value.problems}


def test_a_profile_is_read(tmp_path: Path) -> None:
    profile = load(tmp_path, gpus=8, pod_patch={"metadata": {"annotations": {"a/b": "c"}}})
    assert workers_per_node(profile) == 8, "of the pods, whatever this machine has"
    volume = volume_of_root(profile)
    assert volume is not None
    assert volume.claim == "dlrmx-runs"
    assert workers_per_node(load(tmp_path)) == 2


def test_the_example_is_a_profile(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    profile = load_recipe(tmp_path / "tiny.yaml", cluster=str(EXAMPLE)).profile
    assert isinstance(profile, KubernetesProfile)
    keys = set(yaml.safe_load(EXAMPLE.read_text()))
    assert set(KubernetesProfile.model_fields) - keys == {"workers_per_node", "python", "service_account", "port"}


def test_the_least_profile_of_the_docs_is_one(tmp_path: Path) -> None:
    text = EXAMPLE.parents[1].joinpath("kubernetes.md").read_text()
    (tmp_path / "least.yaml").write_text(text.partition("```yaml profile\n")[2].partition("```")[0])
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    profile = load_recipe(tmp_path / "tiny.yaml", cluster=str(tmp_path / "least.yaml")).profile
    assert isinstance(profile, KubernetesProfile)
    assert (profile.kind, profile.nodes, workers_per_node(profile), profile.cpus) == ("job", 2, 2, 4)


def test_checkpoints_need_a_volume(tmp_path: Path) -> None:
    found = problems(tmp_path, volumes={"data": {"nfs": "filer:/data", "mount": "/data"}})
    assert "no volume holds /runs/me: checkpoints would be lost" in found["cluster.volumes"]
    assert "-s checkpoint='{save: false}'" in found["cluster.volumes"]
    assert load(tmp_path, "checkpoint={save: false}", volumes={}).volumes == {}
    beside = problems(tmp_path, volumes={"runs": {**RUNS, "mount": "/runs/m"}})
    assert "cluster.volumes" in beside, "a path that begins alike is another folder"
    assert "read_only" in problems(tmp_path, volumes={"runs": {**RUNS, "read_only": True}})["cluster.root"]


def test_without_checkpoints_no_volume_is_needed(tmp_path: Path) -> None:
    assert load(tmp_path, "checkpoint.save=false", volumes={}).volumes == {}
    found = problems(tmp_path, "checkpoint.save=false", "checkpoint.keep=2", volumes={})
    assert "checkpoint.save is false" in found["checkpoint.keep"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("root", "runs", "must be an absolute path"),
        ("namespace", "Team A", "lower-case letters"),
        ("image", "a b", "without blanks"),
        ("port", 80_000, "at most 65527"),
        ("cpus", 1e-9, "must be at least 0.001"),
        ("shared_memory_gib", 1e300, "must be at most 1000000000"),
        ("queue", "Big_Queue", "lower-case letters"),
        ("node_selector.pool", "a value", "a label's value"),
        ("volumes.runs", {"mount": "/runs"}, "needs one of claim, host_path and nfs, and has none"),
        ("volumes.runs", {**RUNS, "nfs": "a:/b"}, "has claim and nfs"),
        ("volumes.more", {**RUNS}, "/runs is volume runs already"),
        ("volumes.more", {"claim": "a", "mount": "/dev/shm"}, "is shared memory already"),
        ("volumes.more", {"nfs": "filer/x", "mount": "/x"}, "SERVER:/PATH"),
        ("tolerations", [{"key": "a", "operator": "Equal"}], "a value goes with"),
        ("slurm_partition", "a", "unknown key"),
    ],
)
def test_what_the_cluster_would_refuse(tmp_path: Path, key: str, value: Any, words: str) -> None:
    outer, _, inner = key.partition(".")
    changes = {outer: {**GOOD.get(outer, {}), inner: value} if inner else value}
    (found,) = [text for name, text in problems(tmp_path, **changes).items() if name.startswith(f"cluster.{outer}")]
    assert words in found


def test_two_settings_that_do_not_fit(tmp_path: Path) -> None:
    assert "queues are Volcano's" in problems(tmp_path, kind="job", queue="big")["cluster.queue"]
    assert "a pod has 8 GPUs" in problems(tmp_path, gpus=8, workers_per_node=4)["cluster.workers_per_node"]
    secret = {"A": {"secret": "s", "key": "k"}}
    assert "is in env, too" in problems(tmp_path, env={"A": "1"}, secret_env=secret)["cluster.secret_env.A"]


@pytest.mark.parametrize(
    ("patch", "key", "words"),
    [
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy", "take it out"),
        ({"spec": {"terminationGracePeriodSeconds": 1}}, "spec.terminationGracePeriodSeconds", "use grace"),
        ({"spec": {"nodeSelector": {"a": "b"}}}, "spec.nodeSelector", "use node_selector"),
        ({"spec": {"containers": [{"name": "node", "image": "y"}]}}, "spec.containers.node.image", "use image"),
        ({"spec": {"containers": [{"name": "node", "env": []}]}}, "spec.containers.node.env", "use env and secret_env"),
        ({"spec": {"containers": [{"image": "y"}]}}, "spec.containers", "with names"),
        (
            {"spec": {"containers": [{"name": "node", "resources": {"limits": {"memory": "1Gi"}}}]}},
            "spec.containers.node.resources.limits.memory",
            "use memory_gib",
        ),
        ({"metadata": {"name": "x"}}, "metadata.name", "labels and annotations"),
        ({"metadata": {"labels": {"dlrmx/run": "x"}}}, "metadata.labels.dlrmx/run", "is set by dlrmx"),
        ({"nodeName": "n1"}, "nodeName", "metadata and spec only"),
        ({"spec": 1}, "spec", "must be a mapping"),
    ],
)
def test_a_patch_leaves_what_is_ours(tmp_path: Path, patch: dict[str, Any], key: str, words: str) -> None:
    assert words in problems(tmp_path, pod_patch=patch)[f"cluster.pod_patch.{key}"]
