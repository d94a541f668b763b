"""What the planner counts on: memory, bandwidths and rates of each rank, by kind of node.

Sources, where a number has one; the tags say how good it is.
  [A100]   NVIDIA A100 datasheet: 40 GB at 1,555 GB/s, 80 GB at 2,039 GB/s; fp32 19.5, TF32 156, bf16 312 TFLOP/s;
           NVLink 600 GB/s in both directions together; PCIe 4 x16: 32 GB/s in one.
  [H100]   NVIDIA H100 SXM datasheet: 80 GB at 3,350 GB/s; fp32 67, TF32 494, bf16 989 TFLOP/s; NVLink 900 GB/s in both
           directions; PCIe 5 x16: 64 GB/s in one.
  [H200]   NVIDIA H200 datasheet: 141 GB at 4,800 GB/s, the rest as H100.
  [DGX]    NVIDIA DGX A100 80GB and DGX H100 datasheets: 2 TB of host memory; 8 x 200 Gb/s and 8 x 400 Gb/s to other
           nodes. Host memory bandwidth is the processors': 2 x 8 channels of DDR4-3200 and of DDR5-4800.
  [NEO]    Mudigere et al., arXiv 2104.05158, in notes of others or from memory: a ZionEX node has 8 x A100 40 GB,
           1.5 TB of host memory at 320 GB/s, and 8 x 200 Gb/s RoCE; an A100 reaches some 1,300 GB/s in look-ups;
           at 128 GPUs all-to-all reaches some 7 GB/s and all-reduce some 60 GB/s (bus bandwidth) per GPU.
  [FIG14]  The same paper's matrix benchmark: 512 x 4,000 x 4,000 stays below 150 of 312 TFLOP/s.
Derived: all-to-all between nodes 7 / 25 of the link; all-reduce between nodes 0.37 of it, from 60 GB/s: a ring over 16
nodes of an eighth each after a reduce-scatter inside the node. H100 and H200 take the A100's shares: nothing better
was found, and a profile may say its own (`node.achieved`).
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from dlrmx.recipe.clusters import host_memory_bytes, node_of, workers_per_node
from dlrmx.recipe.node import GPUS_PER_NODE, Node
from dlrmx.recipe.profiles import Profile

GB = 10**9


@dataclass(frozen=True)
class Achieved:
    """The share of each rate that is reached in practice."""

    matrix: float
    hbm: float
    ddr: float
    host: float
    all_to_all_up: float
    all_to_all_out: float
    all_reduce_up: float
    all_reduce_out: float


@dataclass(frozen=True)
class Topology:
    """`world` ranks, `ranks_per_node` of them on each node (the last may have fewer).

    All numbers are of one rank: bytes; bytes per second in one direction; seconds; floating-point operations per
    second. "up" is to other ranks of the node, "out" to other nodes. On a processor hbm is the host's memory and there
    is no other tier (ddr_bytes 0). Rates are peaks; `achieved` says which share of them is reached.
    """

    device: Literal["cuda", "cpu"]
    world: int
    ranks_per_node: int
    hbm_bytes: int
    ddr_bytes: int
    hbm_rate: float
    ddr_rate: float
    host_rate: float
    up_rate: float
    out_rate: float
    up_latency_s: float  # of a collective with nothing in it
    out_latency_s: float
    fp32_flops: float
    tf32_flops: float
    bf16_flops: float
    op_s: float  # to start one operation
    id_s: float  # to route one id at its sample's owner
    achieved: Achieved
    # What a processor takes beyond bytes and operations. A GPU's threads hide it, and its host works ahead of it.
    step_s: float = 0.0  # of a step, whatever is in it
    feature_s: float = 0.0  # of a feature in a step
    row_s: float = 0.0  # to find and read one row
    update_s: float = 0.0  # to sort one id and find its row again
    vector_s: float = 0.0  # to put one vector of a bag where it belongs, and its gradient
    number_s: float = 0.0  # of each number that interacts, in the forward pass; four times that in the backward pass
    product_s: float = 0.0  # of each dot product of two vectors, likewise
    parameter_s: float = 0.0  # to update one parameter of the dense part
    cache_bytes: float = 0.0  # of a step's vectors the caches hold so much

    @property
    def nodes(self) -> int:
        return -(-self.world // self.ranks_per_node)

    @property
    def mapped_ranks(self) -> int:
        """Other ranks whose messages and dense gradients are read in their own memory (dlrmx.parallel.shared)."""
        return self.world - 1 if self.device == "cpu" and self.nodes == 1 else 0

    def sized(self, *, world: int, ranks_per_node: int | None = None) -> "Topology":
        """The same kind of ranks in another number."""
        return replace(self, world=world, ranks_per_node=ranks_per_node or self.ranks_per_node)


# ------------------------------------------------------------------------------- the kinds of node

_A100 = Achieved(
    matrix=0.48,  # [FIG14]
    hbm=0.84,  # [NEO] 1,300 of 1,555
    ddr=0.8,  # estimate
    host=0.8,  # estimate
    all_to_all_up=0.75,  # estimate
    all_to_all_out=0.28,  # [NEO] derived
    all_reduce_up=0.75,  # estimate
    all_reduce_out=0.37,  # [NEO] derived
)
_ZIONEX = Topology(
    device="cuda",
    world=GPUS_PER_NODE,
    ranks_per_node=GPUS_PER_NODE,
    hbm_bytes=40 * GB,  # [NEO]
    ddr_bytes=1500 * GB // GPUS_PER_NODE,  # [NEO]
    hbm_rate=1555 * GB,  # [A100]
    ddr_rate=320 * GB / GPUS_PER_NODE,  # [NEO]
    host_rate=32 * GB,  # [A100]
    up_rate=300 * GB,  # [A100]
    out_rate=25 * GB,  # [NEO]
    up_latency_s=20e-6,  # estimate
    out_latency_s=50e-6,  # estimate
    fp32_flops=19.5e12,  # [A100]
    tf32_flops=156e12,  # [A100]
    bf16_flops=312e12,  # [A100]
    op_s=5e-6,  # estimate: a kernel launch
    id_s=0.1e-9,  # estimate: three passes over an id of 8 bytes and its place, at the memory's rate
    achieved=_A100,
)
_DGX_A100_80 = replace(
    _ZIONEX,
    hbm_bytes=80 * GB,  # [A100]
    hbm_rate=2039 * GB,  # [A100]
    ddr_bytes=2000 * GB // GPUS_PER_NODE,  # [DGX]
    ddr_rate=409.6 * GB / GPUS_PER_NODE,  # [DGX]
)
_DGX_H100 = replace(
    _DGX_A100_80,
    hbm_rate=3350 * GB,  # [H100]
    ddr_rate=614.4 * GB / GPUS_PER_NODE,  # [DGX]
    host_rate=64 * GB,  # [H100]
    up_rate=450 * GB,  # [H100]
    out_rate=50 * GB,  # [DGX]
    fp32_flops=67e12,  # [H100]
    tf32_flops=494e12,  # [H100]
    bf16_flops=989e12,  # [H100]
)
_HGX_H200 = replace(_DGX_H100, hbm_bytes=141 * GB, hbm_rate=4800 * GB)  # [H200]
# One or two cores of a present server and gloo over loopback, in round numbers: `dlrmx clusters measure` has better.
_CPU = Topology(
    device="cpu",
    world=1,
    ranks_per_node=1,
    hbm_bytes=0,  # the machine's own
    ddr_bytes=0,
    hbm_rate=8 * GB,
    ddr_rate=8 * GB,
    host_rate=8 * GB,
    up_rate=1 * GB,
    out_rate=1 * GB,
    up_latency_s=300e-6,
    out_latency_s=500e-6,
    fp32_flops=50e9,
    tf32_flops=50e9,
    bf16_flops=100e9,
    op_s=20e-6,
    id_s=50e-9,
    step_s=3e-3,
    feature_s=30e-6,
    row_s=20e-9,
    update_s=40e-9,
    vector_s=50e-9,
    number_s=1e-9,
    product_s=2e-9,
    parameter_s=3e-9,
    cache_bytes=8e6,
    achieved=Achieved(
        matrix=1.0,
        hbm=1.0,
        ddr=1.0,
        host=1.0,
        all_to_all_up=1.0,
        all_to_all_out=1.0,
        all_reduce_up=1.0,
        all_reduce_out=1.0,
    ),
)
KINDS: dict[str, Topology] = {
    "zionex": _ZIONEX,
    "dgx_a100_80": _DGX_A100_80,
    "dgx_h100": _DGX_H100,
    "hgx_h200": _HGX_H200,
    "cpu": _CPU,
}


# --------------------------------------------------------------------------------- from a profile


def topology_of(profile: Profile) -> Topology:
    """The ranks of a profile, as its `node` section describes them; without one, this machine's GPUs or processes."""
    node = node_of(profile)
    per_node = workers_per_node(profile)
    base = KINDS[node.kind or ("zionex" if node.device == "cuda" else "cpu")]
    topology = replace(
        base,
        world=profile.nodes * per_node,
        ranks_per_node=per_node,
        ddr_bytes=base.ddr_bytes * base.ranks_per_node // per_node,
        ddr_rate=base.ddr_rate * base.ranks_per_node / per_node,
    )
    return _limited(_with_numbers(topology, node), profile)


def counted_on(profile: Profile) -> dict[str, float]:
    """What plans for a profile count on, by the keys and in the units of its `node` section."""
    topology = topology_of(profile)
    units = _units(topology.ranks_per_node)
    numbers = {key: getattr(topology, name) / unit for key, (name, unit) in units.items()}
    return numbers | {f"achieved.{share}": value for share, value in vars(topology.achieved).items()}


def _units(per_node: int) -> dict[str, tuple[str, float]]:
    """Each number of a `node` section: its name here, and its unit."""
    return {
        "hbm_gb": ("hbm_bytes", GB),
        "ddr_gb": ("ddr_bytes", GB / per_node),
        "hbm_gb_s": ("hbm_rate", GB),
        "ddr_gb_s": ("ddr_rate", GB / per_node),
        "host_gb_s": ("host_rate", GB),
        "up_gb_s": ("up_rate", GB),
        "out_gb_s": ("out_rate", GB),
        "up_us": ("up_latency_s", 1e-6),
        "out_us": ("out_latency_s", 1e-6),
        "fp32_tflops": ("fp32_flops", 1e12),
        "tf32_tflops": ("tf32_flops", 1e12),
        "bf16_tflops": ("bf16_flops", 1e12),
        "op_us": ("op_s", 1e-6),
        "id_ns": ("id_s", 1e-9),
        "step_us": ("step_s", 1e-6),
        "feature_us": ("feature_s", 1e-6),
        "row_ns": ("row_s", 1e-9),
        "update_ns": ("update_s", 1e-9),
        "vector_ns": ("vector_s", 1e-9),
        "number_ns": ("number_s", 1e-9),
        "product_ns": ("product_s", 1e-9),
        "parameter_ns": ("parameter_s", 1e-9),
        "cache_mb": ("cache_bytes", 1e6),
    }


def _with_numbers(topology: Topology, node: Node) -> Topology:
    """The numbers that the profile gives instead of the kind's."""
    units = _units(topology.ranks_per_node)
    given = {name: (getattr(node, key), unit) for key, (name, unit) in units.items()}
    numbers = {name: value * unit for name, (value, unit) in given.items() if value is not None}
    whole: dict[str, Any] = {name: int(value) if name.endswith("_bytes") else value for name, value in numbers.items()}
    shares = node.achieved.model_dump(exclude_none=True) if node.achieved else {}
    return replace(topology, **whole, achieved=replace(topology.achieved, **shares))


def _limited(topology: Topology, profile: Profile) -> Topology:
    """`memory_gib` is the host's memory that plans may use; on a processor all memory is the host's."""
    share = host_memory_bytes(profile) // topology.ranks_per_node
    if topology.device == "cuda":
        own = profile.memory_gib is None and (profile.scheduler != "local" or profile.node is not None)
        return topology if own else replace(topology, ddr_bytes=share)
    known = topology.hbm_bytes and profile.memory_gib is None
    return replace(topology, hbm_bytes=topology.hbm_bytes if known else share, ddr_bytes=0)
