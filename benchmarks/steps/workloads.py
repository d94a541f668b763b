"""The six workloads, the same for all sides: a recipe, and batches drawn once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlrmx.data.batches import Bags, Batch
from dlrmx.recipe.schema import Recipe

DENSE = 13
RATE = 0.01
DIFFERENT = 8  # batches per rank, taken in turn
MLPERF_ROWS = [
    *(40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10),
    *(2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36),
]
MLPERF_POOLING = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]
CAP = 100_000


@dataclass(frozen=True)
class Workload:
    """rows and pooling factor by table; batch: rows per rank; types: what the recipe allows the planner."""

    rows: Sequence[int]
    pooling: Sequence[int]
    dim: int
    model: dict[str, Any]
    batch: int
    types: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        return [f"t{index}" for index in range(len(self.rows))]

    def recipe(self, world: int, exchange: dict[str, Any]) -> Recipe:
        """The recipe of this workload on `world` ranks."""
        allowed = {name: {"types": list(self.types)} for name in self.names} if self.types else {}
        return Recipe.model_validate(
            {
                "dlrmx": 1,
                "name": "workload",
                "data": {"kind": "synthetic", "rows": 1_000},
                "dense": {f"d{index}": {} for index in range(DENSE)},
                "features": {name: {} for name in self.names},
                "tables": {n: {"rows": rows, "dim": self.dim} for n, rows in zip(self.names, self.rows, strict=True)},
                "model": self.model,
                "optimizer": {"dense": {"kind": "sgd", "lr": RATE}, "sparse": {"kind": "rowwise_adagrad", "lr": RATE}},
                "train": {"batch": self.batch * world, "stop": {"steps": 1}},
                "sharding": {"tables": allowed},
                "exchange": exchange,
            }
        )

    def batches(self, rank: int) -> list[Batch]:
        """What this rank trains on: uniform ids."""
        return [self._batch(np.random.default_rng([rank, index])) for index in range(DIFFERENT)]

    def _batch(self, random: np.random.Generator) -> Batch:
        size = self.batch
        bags = {
            name: Bags(random.integers(0, rows, size * length), np.full(size, length, np.int32), None)
            for name, rows, length in zip(self.names, self.rows, self.pooling, strict=True)
        }
        labels = (random.random(size) < 0.25).astype(np.float32)
        return Batch(labels, random.normal(size=(size, DENSE)).astype(np.float32), bags)


def _dlrm(bottom: list[int], top: list[int]) -> dict[str, Any]:
    return {"kind": "dlrm", "bottom": bottom, "top": top}


def _dcn(rank: int, bottom: list[int], top: list[int]) -> dict[str, Any]:
    return {"kind": "dcnv2", "bottom": bottom, "top": top, "cross_layers": 3, "cross_rank": rank}


TOP = [512, 512, 256, 1]
WORKLOADS = {
    "1 criteo one-hot": Workload([CAP] * 26, [1] * 26, 64, _dlrm([512, 256, 64], TOP), 2_048),
    "2 mlperf dcnv2": Workload(
        [min(rows, CAP) for rows in MLPERF_ROWS],
        MLPERF_POOLING,
        128,
        _dcn(512, [512, 256, 128], [1024, 1024, 512, 256, 1]),
        512,
        # Of copied tables, as the smallest would be, gradients are added in another order: 2e-5 in the sixth loss.
        ("table_wise",),
    ),
    "3 pooling 10": Workload([CAP] * 26, [10] * 26, 128, _dlrm([512, 256, 128], TOP), 1_024),
    "4 many tables": Workload([20_000] * 500, [5] * 500, 32, _dcn(64, [64, 32], [512, 256, 1]), 256),
    "5 wide tables": Workload([2_000_000] * 4, [20] * 4, 256, _dlrm([256, 256], [256, 1]), 512),
    "6 row_wise": Workload([1_000_000] * 8, [1] * 8, 64, _dlrm([512, 256, 64], TOP), 4_096, ("row_wise",)),
}
