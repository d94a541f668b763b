"""A plan with all that is said of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrmx.plan.prediction import Prediction
    from dlrmx.plan.shards import Plan
    from dlrmx.plan.topology import Topology

# A GPU's host works ahead of it, but not of steps shorter than this: starting their operations takes milliseconds.
SHORT_STEP_S = 0.01
UNCOUNTED = "Python's time between operations is not counted"


@dataclass(frozen=True)
class Planned:
    """A plan with all that is said of it. usable_bytes: what a rank may fill; epoch_rows: None where unknown."""

    plan: "Plan"
    prediction: "Prediction"
    topology: "Topology"
    table_bytes: dict[str, int]  # weights and optimizer state of one copy
    usable_bytes: int
    reserve: float
    epoch_rows: int | None
    chunked: bool  # the exchange goes in chunks or pieces, which no prediction counts

    @property
    def short(self) -> bool:
        """Whether Python's time, which only a processor's constants have, would be much of the step."""
        return self.topology.step_s == 0 and self.prediction.step_s < SHORT_STEP_S

    @property
    def fullest(self) -> int:
        """The rank whose device memory is fullest."""
        memory = self.prediction.memory
        return max(range(len(memory)), key=lambda rank: memory[rank].total_bytes)


def hours_per_epoch(planned: Planned) -> float | None:
    """None where the rows of an epoch are not known."""
    return None if planned.epoch_rows is None else planned.epoch_rows / planned.prediction.samples_per_s / 3600
