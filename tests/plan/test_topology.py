"""Kinds of node, profiles that name one or give numbers, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dlrmx.plan.topology import GB, KINDS, counted_on, topology_of
from dlrmx.recipe import clusters
from dlrmx.recipe.clusters import host_memory_bytes
from dlrmx.recipe.node import NEEDED
from dlrmx.recipe.profiles import Profile, read_profile


def profile(**node: Any) -> Profile:
    return read_profile({"scheduler": "slurm", "nodes": 16, "node": node})


def test_a_zionex_cluster_as_published() -> None:
    """16 nodes: 128 GPUs, 5.1 TB of device memory and 24 TB of host memory; 12.4 TB/s and 200 GB/s a node."""
    topology = topology_of(profile(kind="zionex"))
    assert (topology.world, topology.nodes, topology.device) == (128, 16, "cuda")
    assert topology.world * topology.hbm_bytes == 5120 * GB
    assert topology.world * topology.ddr_bytes == 24_000 * GB
    assert 8 * topology.hbm_rate == pytest.approx(12.4e12, rel=0.01)
    assert 8 * topology.ddr_rate == 320 * GB
    assert 8 * topology.out_rate * 8 == pytest.approx(1600e9)


def test_fewer_workers_share_the_host() -> None:
    raw = {"scheduler": "slurm", "nodes": 2, "workers_per_node": 4, "node": {"kind": "zionex"}}
    topology = topology_of(read_profile(raw))
    assert (topology.world, topology.ddr_bytes, topology.ddr_rate) == (8, 375 * GB, 80 * GB)
    assert topology.hbm_bytes == 40 * GB


def test_numbers_go_before_the_kinds() -> None:
    topology = topology_of(profile(kind="dgx_h100", out_gb_s=25.0, out_us=80.0, achieved={"all_to_all_out": 0.5}))
    assert topology.out_rate == 25 * GB
    assert topology.out_latency_s == pytest.approx(80e-6)
    assert topology.achieved.all_to_all_out == 0.5
    assert topology.achieved.matrix == KINDS["dgx_h100"].achieved.matrix
    assert topology.hbm_rate == 3350 * GB


def test_numbers_alone() -> None:
    raw = {"scheduler": "slurm", "workers_per_node": 2, "node": {"device": "cuda", **dict.fromkeys(NEEDED, 10.0)}}
    topology = topology_of(read_profile(raw))
    assert (topology.device, topology.world) == ("cuda", 2)
    assert (topology.hbm_bytes, topology.ddr_bytes, topology.ddr_rate) == (10 * GB, 5 * GB, 5 * GB)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"device": "cuda"}, "hbm_gb, ddr_gb"),
        ({"kind": "zionex", "device": "cuda"}, "says the device"),
        ({"kind": "zionx"}, "zionex"),
        ({"kind": "cpu", "out_gb_s": 0.0}, "greater than 0"),
        ({"kind": "cpu", "hbm_gb": 1e300}, "less than or equal to 1000000000"),
    ],
)
def test_what_is_no_node_is_refused(node: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        profile(**node)


def test_memory_without_end_is_refused() -> None:
    with pytest.raises(ValidationError, match="memory_gib"):
        read_profile({"scheduler": "local", "memory_gib": 1e300})


def test_processes_share_this_machine() -> None:
    topology = topology_of(read_profile({"workers_per_node": 4, "memory_gib": 2}))
    assert (topology.device, topology.world, topology.hbm_bytes, topology.ddr_bytes) == ("cpu", 4, 2**29, 0)


def test_memory_gib_is_the_hosts() -> None:
    raw = {"scheduler": "slurm", "memory_gib": 8, "node": {"kind": "dgx_h100"}}
    topology = topology_of(read_profile(raw))
    assert (topology.hbm_bytes, topology.ddr_bytes) == (80 * GB, 2**30)


@pytest.mark.parametrize(("model", "device"), [("NVIDIA H200", "cuda"), ("NVIDIA GTX 1080", "cpu")])
def test_this_machines_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, device: str) -> None:
    """Two of them, as the driver tells; the host's memory is what this machine has."""
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text(f"Model: \t\t {model}\nIRQ: 7\n")
    monkeypatch.setattr(clusters, "GPUS", tmp_path)
    topology = topology_of(read_profile({}))
    assert (topology.world, topology.device) == (2, device)
    machine = host_memory_bytes(read_profile({})) // 2
    assert (topology.hbm_bytes, topology.ddr_bytes) == ((141 * GB, machine) if device == "cuda" else (machine, 0))


def test_what_is_counted_on_is_said_in_the_units_of_a_profile() -> None:
    numbers = counted_on(profile(kind="zionex", out_gb_s=20.0))
    assert (numbers["hbm_gb"], numbers["ddr_gb"], numbers["out_gb_s"]) == (40, 1500, 20)
    assert numbers["up_us"] == pytest.approx(20)
    assert numbers["achieved.hbm"] == 0.84
