"""What a plan is predicted to cost: bytes and seconds per rank, the step's time, bytes by link, cost by table."""

from dataclasses import dataclass, fields
from typing import Literal

Link = Literal["up", "out", "host"]  # to ranks of the same node, to other nodes, between device and host memory
Cargo = Literal["ids", "vectors", "gradients", "all_reduce", "cache"]


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one rank, by what they are for. The tables' part in host memory is apart: it is another tier."""

    weights_bytes: int = 0  # of tables, in device memory; cached rows and replicas included
    state_bytes: int = 0  # the tables' optimizer state, likewise
    dense_bytes: int = 0  # weights, gradients and optimizer state of the dense part; gradients of replicas
    activation_bytes: int = 0  # or ids being routed: beyond what exchange_bytes leaves free meanwhile
    exchange_bytes: int = 0  # ids, vectors and gradients on their way
    pipeline_bytes: int = 0  # batches that are read ahead
    host_weights_bytes: int = 0
    host_state_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """In device memory (of a processor: the host's)."""
        return sum(getattr(self, name) for name in _DEVICE_PARTS)

    @property
    def host_bytes(self) -> int:
        """In host memory, of ranks that have a device."""
        return self.host_weights_bytes + self.host_state_bytes

    def __add__(self, other: "RankMemory") -> "RankMemory":
        return RankMemory(*(getattr(self, name) + getattr(other, name) for name in _PARTS))


_PARTS = tuple(field.name for field in fields(RankMemory))
_DEVICE_PARTS = tuple(name for name in _PARTS if not name.startswith("host"))


@dataclass(frozen=True)
class Stages:
    """Seconds of each stage of a step: of one rank, or of those that the others wait for."""

    ids: float = 0.0
    lookup: float = 0.0
    vectors: float = 0.0
    dense_forward: float = 0.0
    dense_backward: float = 0.0
    all_reduce: float = 0.0
    gradients: float = 0.0
    update: float = 0.0


@dataclass(frozen=True)
class Traffic:
    """Bytes that all ranks together send over one kind of link in a step."""

    link: Link
    cargo: Cargo
    num_bytes: float


@dataclass(frozen=True)
class TableCost:
    """What a table costs per step: seconds summed over all ranks, and on the rank where it costs most."""

    total_s: float
    largest_s: float


@dataclass(frozen=True)
class Prediction:
    """What a step of a plan costs.

    step_s is less than the sum of `slowest` where stages overlap: `exposed` has what each adds to the step.
    """

    batch: int  # global, in samples
    memory: tuple[RankMemory, ...]  # by rank
    loads: tuple[float, ...]  # by rank: seconds that the tables cost it, waiting for others apart
    ranks: tuple[Stages, ...]  # by rank
    slowest: Stages
    exposed: Stages
    step_s: float
    traffic: tuple[Traffic, ...]
    tables: dict[str, TableCost]

    @property
    def samples_per_s(self) -> float:
        return self.batch / self.step_s

    @property
    def imbalance(self) -> float:
        """The tables' seconds on the busiest rank over their mean."""
        total = sum(self.loads)
        return max(self.loads) * len(self.loads) / total if total else 1.0
