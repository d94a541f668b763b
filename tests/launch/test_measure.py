"""Measuring a machine, and writing what was found into a profile."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlrmx.errors import ClusterError, InputError
from dlrmx.launch.measure import Line, Measured, measure, measured_node, write_node
from dlrmx.plan.topology import topology_of
from dlrmx.recipe.node import Achieved, Node
from dlrmx.recipe.profiles import LocalProfile, read_profile
from dlrmx.recipe.yaml_file import read_yaml
from kube_lab import pod_profile, volcano_schema
from kube_nodes import running
from kube_server import VOLCANO_JOBS, Cluster, write_kubeconfig

RATES = {
    "matrix_fp32": (80e-6, 50e9),
    "matrix_bf16": (80e-6, 90e9),
    "copy": (0.0, 16e9),
    "look_up": (0.0, 8e9),
    "update": (0.0, 4e9),
    "route": (0.0, 10e6),
    "all_to_all": (300e-6, 1e9),
    "all_reduce": (600e-6, 2e9),
}


def measured(world: int) -> Measured:
    return Measured("cpu", world, 1, {name: Line(fixed, rate, ()) for name, (fixed, rate) in RATES.items()}, {})


def test_the_planner_counts_on_what_was_measured() -> None:
    node = measured_node(measured(2), Node())
    topology = topology_of(LocalProfile(scheduler="local", workers_per_node=2, memory_gib=8.0, node=node))
    assert topology.fp32_flops * topology.achieved.matrix == pytest.approx(50e9)
    assert topology.up_rate * topology.achieved.all_to_all_up == pytest.approx(1e9)
    assert topology.up_rate * topology.achieved.all_reduce_up == pytest.approx(2e9)
    assert topology.hbm_rate == pytest.approx(16e9)
    assert topology.hbm_rate * topology.achieved.hbm == pytest.approx(4e9)
    assert topology.up_latency_s == pytest.approx(300e-6)
    assert topology.id_s == pytest.approx(1e-7)
    assert topology.op_s == pytest.approx(10e-6)


def test_one_worker_measures_no_link() -> None:
    node = measured_node(measured(1), Node(kind="cpu", up_gb_s=7.0))
    assert (node.up_gb_s, node.achieved) == (7.0, Achieved(matrix=1.0, hbm=0.25))


def test_of_unknown_gpus_not_all_is_measured() -> None:
    on_gpus = replace(measured(2), device="cuda")
    with pytest.raises(InputError, match="no known kind"):
        measured_node(on_gpus, Node())
    node = measured_node(on_gpus, Node(kind="dgx_h100"))
    assert (node.kind, node.hbm_gb, node.hbm_gb_s) == ("dgx_h100", None, 16.0)


def test_only_the_node_section_of_a_profile_changes(tmp_path: Path) -> None:
    path = tmp_path / "clusters" / "mine.yaml"
    node = measured_node(measured(2), Node())
    write_node(node, path, "measured today")
    assert read_profile(read_yaml(path).value).node == node
    path.write_text("# ours\nscheduler: local\nnode:\n  kind: cpu\n  # old\n  up_us: 1\n\nroot: here # runs\n")
    write_node(node, path, "measured today")
    lines = path.read_text().splitlines()
    assert lines[:3] == ["# ours", "scheduler: local", "root: here # runs"]
    assert lines[3] == "node:  # measured today"
    assert read_profile(read_yaml(path).value).node == node
    write_node(node, path, "measured today")
    assert path.read_text().splitlines() == lines


# Stands for the workers: each rank says what it is, and rank 0 writes what it found.
WORKER = """
import json, os, sys
line = {"fixed_s": 0.5, "rate": 2.0, "points": [[1.0, 1.0]]}
if os.environ["RANK"] == "0":
    found = {"world": int(os.environ["WORLD_SIZE"]), "device": "cpu", "threads": 1}
    json.dump({**found, "lines": {"copy": line, "x" * 900: line}, "stages": {}}, open(sys.argv[1], "w"))
"""


def test_a_node_of_a_cluster_is_measured_by_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one node, whatever the profile has; what it found comes whole through the pod's log."""
    (tmp_path / "worker.py").write_text(WORKER)
    cluster, said = Cluster(schema=volcano_schema()), list[str]()
    profile = pod_profile(tmp_path / "runs", nodes=3, workers_per_node=2)
    with running(cluster) as (url, _):
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        found = measure(profile, said.append, worker=(str(tmp_path / "worker.py"),))
        (job,) = cluster.list(VOLCANO_JOBS, "ads")
        with pytest.raises(ClusterError, match=r"(?s)says: the measuring workers failed.*No module named no_such"):
            measure(profile, said.append, worker=("-m", "no_such"))
    assert job["spec"]["minAvailable"] == 1
    assert (found.world, found.device, set(found.lines)) == (2, "cpu", {"copy", "x" * 900})
    assert found.lines["copy"] == Line(0.5, 2.0, ((1.0, 1.0),))
    assert any("running" in words for words in said)


def test_what_can_only_be_planned_for_is_not_measured() -> None:
    with pytest.raises(InputError, match="nothing runs on it"):
        measure(read_profile({"scheduler": "none"}), print)


def test_workers_that_fail_are_quoted() -> None:
    profile = LocalProfile(scheduler="local", workers_per_node=1)
    with pytest.raises(ClusterError, match=r"(?s)workers failed.*No module named no_such"):
        measure(profile, print, worker=("-m", "no_such"))


@pytest.mark.slow
def test_this_machine_can_be_measured() -> None:
    found = measure(LocalProfile(scheduler="local", workers_per_node=2), print)
    assert (found.device, found.world, set(found.lines)) == ("cpu", 2, set(RATES))
    for name, line in found.lines.items():
        works, seconds = zip(*line.points, strict=True)
        assert line.fixed_s >= 0, name
        assert max(works) / max(seconds) / 20 < line.rate < 20 * max(works) / min(seconds), name
    measured_node(found, Node())
