"""Seconds per byte of a topology's memory and links, as reached, and what an all-reduce takes by them."""

from typing import NamedTuple

import numpy as np

from dlrmx.plan.memory import FP32_BYTES
from dlrmx.plan.style import Style
from dlrmx.plan.topology import Topology
from dlrmx.plan.workload import Floats, Workload


class Rates(NamedTuple):
    """Seconds per byte, as reached."""

    device: float  # of rows here and there
    stream: float  # of device memory from end to end: copies come near its peak
    host: float
    all_to_all: float  # of bytes for all ranks alike
    in_node: float  # of bytes for all ranks of the node alike
    reduce_scatter: float
    up_share: float  # of bytes for all ranks alike: to other ranks of the node
    out_share: float


def rates(topology: Topology, workload: Workload | None = None) -> Rates:
    """Links inside a node and between nodes work side by side, so an all-to-all takes the longer of the two.

    workload: its vectors are streamed, and caches hold a part of them.
    """
    world, reached = topology.world, topology.achieved
    node = min(topology.ranks_per_node, world)
    nodes = world / node
    up_share, out_share = (node - 1) / world, (world - node) / world
    up, out = topology.up_rate * reached.all_to_all_up, topology.out_rate * reached.all_to_all_out
    ring_up, ring_out = topology.up_rate * reached.all_reduce_up, topology.out_rate * reached.all_reduce_out
    vector_bytes = 0.0 if workload is None else workload.vector_bytes / world
    uncached = vector_bytes / (vector_bytes + topology.cache_bytes) if vector_bytes else 1.0
    return Rates(
        device=1 / (topology.hbm_rate * reached.hbm),
        stream=uncached / topology.hbm_rate,
        host=max(1 / (topology.host_rate * reached.host), 1 / (topology.ddr_rate * reached.ddr)),
        all_to_all=max(up_share / up, out_share / out),
        in_node=(node - 1) / node / up,
        # A ring inside the node, then rings between nodes, each over the part of one rank.
        reduce_scatter=(node - 1) / node / ring_up + (1 - 1 / nodes) / node / ring_out,
        up_share=up_share,
        out_share=out_share,
    )


def all_reduce_seconds(num_bytes: Floats | float, topology: Topology, style: Style) -> Floats:
    """Of `num_bytes` of fp32 on each rank: a reduce-scatter and an all-gather. Without latency.

    In a narrower format parts go straight to the ranks that add them up, and sums to all, as an all-to-all does.
    """
    rate = rates(topology)
    narrow = style.dense_bytes < FP32_BYTES and style.exchange == "touched"
    second = rate.all_to_all if narrow else rate.reduce_scatter
    return np.asarray(2 * num_bytes * style.dense_bytes / FP32_BYTES * second)
