"""The `node` section of a profile: what the planner counts on, as a known kind of machine, as numbers, or both."""

from typing import Literal

from pydantic import model_validator

from dlrmx.recipe.schema import Settings, setting

NodeKind = Literal["zionex", "dgx_a100_80", "dgx_h100", "hgx_h200", "cpu"]
GPUS_PER_NODE = 8  # of every kind but cpu
NEEDED = (
    "hbm_gb",
    "ddr_gb",
    "hbm_gb_s",
    "ddr_gb_s",
    "host_gb_s",
    "up_gb_s",
    "out_gb_s",
    "fp32_tflops",
    "tf32_tflops",
    "bf16_tflops",
)


MOST = 1_000_000_000  # of any unit below: in bytes still a 64-bit number


def _number(description: str) -> float | None:
    found: float | None = setting(f"{description}; default: the kind's", None, resume="free", gt=0, le=MOST)
    return found


def _share(of: str) -> float | None:
    found: float | None = setting(
        f"share of {of} that is reached; default: the kind's", None, resume="free", gt=0, le=1
    )
    return found


class Achieved(Settings):
    """How much of each rate is reached in practice."""

    matrix: float | None = _share("the matrix rate")
    hbm: float | None = _share("the device memory's bandwidth, in look-ups")
    ddr: float | None = _share("the host memory's bandwidth, in look-ups")
    host: float | None = _share("the link between host and device")
    all_to_all_up: float | None = _share("the bandwidth inside a node, by all-to-all")
    all_to_all_out: float | None = _share("the bandwidth between nodes, by all-to-all")
    all_reduce_up: float | None = _share("the bandwidth inside a node, by all-reduce")
    all_reduce_out: float | None = _share("the bandwidth between nodes, by all-reduce")


class Node(Settings):
    """A node of the cluster. GB are 10**9 bytes; bandwidths are of one direction, and of one rank unless said."""

    kind: NodeKind | None = setting(
        "a known machine, whose numbers count where none is given here; default: cpu, where no device is named",
        None,
        resume="free",
    )
    device: Literal["cuda", "cpu"] | None = setting(
        "what ranks run on, of a machine of no known kind: its numbers are then all needed", None, resume="free"
    )
    hbm_gb: float | None = _number("memory of a rank's device, in GB (of a processor: a rank's share of the host's)")
    ddr_gb: float | None = _number("memory of the host, in GB per node")
    hbm_gb_s: float | None = _number("bandwidth of the device memory, in GB/s")
    ddr_gb_s: float | None = _number("bandwidth of the host's memory, in GB/s per node")
    host_gb_s: float | None = _number("bandwidth between host and device, in GB/s")
    up_gb_s: float | None = _number("bandwidth to the other ranks of the node, in GB/s")
    out_gb_s: float | None = _number("bandwidth to other nodes, in GB/s")
    up_us: float | None = _number("time of an empty collective inside a node, in microseconds")
    out_us: float | None = _number("time of an empty collective between nodes, in microseconds")
    fp32_tflops: float | None = _number("matrix rate in fp32, in TFLOP/s")
    tf32_tflops: float | None = _number("matrix rate in TF32, in TFLOP/s")
    bf16_tflops: float | None = _number("matrix rate in bf16, in TFLOP/s")
    op_us: float | None = _number("time to start one operation of the dense part, in microseconds")
    id_ns: float | None = _number("time to route one id, in nanoseconds")
    step_us: float | None = _number("time of a step, whatever is in it, in microseconds")
    feature_us: float | None = _number("time of a feature in a step, in microseconds")
    row_ns: float | None = _number("time to find and read one row, beside its bytes, in nanoseconds")
    update_ns: float | None = _number("time to sort one id and find its row again, beside bytes, in nanoseconds")
    vector_ns: float | None = _number("time to put one vector and its gradient in place, beside bytes, in nanoseconds")
    number_ns: float | None = _number("time of one number that interacts, forward (backward: 4 times), in nanoseconds")
    product_ns: float | None = _number("time of one dot product of two vectors, likewise, in nanoseconds")
    cache_mb: float | None = _number("caches that hold vectors of a step, in MB (10**6 bytes)")
    parameter_ns: float | None = _number("time to update one parameter of the dense part, in nanoseconds")
    achieved: Achieved | None = setting("shares of these rates that are reached", None, resume="free")

    @model_validator(mode="after")
    def _is_known(self) -> "Node":
        if self.kind is not None and self.device is not None:
            raise ValueError("has a kind, which says the device; take out one of them")
        missing = [name for name in NEEDED if getattr(self, name) is None]
        if self.device is not None and missing:
            raise ValueError(f"of no known kind: {', '.join(missing)} must be given, too")
        return self
