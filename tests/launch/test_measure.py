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


def test_a_cluster_is_not_measured_from_here() -> None:
    with pytest.raises(InputError, match="only this machine can be measured"):
        measure(read_profile({"scheduler": "slurm"}))


def test_workers_that_fail_are_quoted() -> None:
    profile = LocalProfile(scheduler="local", workers_per_node=1)
    with pytest.raises(ClusterError, match=r"(?s)workers failed.*No module named no_such"):
        measure(profile, worker=("-m", "no_such"))


@pytest.mark.slow
def test_this_machine_can_be_measured() -> None:
    found = measure(LocalProfile(scheduler="local", workers_per_node=2))
    assert (found.device, found.world, set(found.lines)) == ("cpu", 2, set(RATES))
    for name, line in found.lines.items():
        works, seconds = zip(*line.points, strict=True)
        assert line.fixed_s >= 0, name
        assert max(works) / max(seconds) / 20 < line.rate < 20 * max(works) / min(seconds), name
    measured_node(found, Node())
