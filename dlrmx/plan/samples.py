"""Small models that a machine trains for some steps while it is measured, and the plans that they are trained by.

They differ in what takes their time: each constant that `dlrmx.plan.calibrate` finds weighs in some and not in others.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from dlrmx.plan.planner import make_plan
from dlrmx.plan.shards import Kind, Plan
from dlrmx.plan.topology import KINDS
from dlrmx.recipe.schema import Recipe

STEPS = 16
EPOCH_STEPS = 8
PLENTY_BYTES = 1 << 40  # plans here are of a given type, whatever they take


@dataclass(frozen=True)
class Sample:
    """A model of `tables` one-feature tables that are alike, `rows` long all together."""

    tables: int
    rows: int
    dim: int
    pooling: int
    kind: Kind
    batch: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    interaction: Literal["cat", "dot"]

    def recipe(self) -> Recipe:
        """As a recipe's file would say it."""
        names = [f"t{k:03d}" for k in range(self.tables)]
        raw: dict[str, Any] = {
            "dlrmx": 1,
            "name": "sample",
            "data": {
                "kind": "synthetic",
                "rows": EPOCH_STEPS * self.batch,
                "pooling": {name: {"mean": self.pooling, "max": 2 * self.pooling} for name in names}
                if self.pooling > 1
                else {},
            },
            "dense": {f"x{k}": {} for k in range(4)},
            "features": {name: {"table": name} for name in names},
            "tables": {name: {"rows": self.rows // self.tables, "dim": self.dim} for name in names},
            "model": {"kind": "dlrm", "bottom": [*self.bottom], "top": [*self.top], "interaction": self.interaction},
            "optimizer": {
                "dense": {"kind": "adagrad", "lr": 0.01},
                "sparse": {"kind": "rowwise_adagrad", "lr": 0.01},
            },
            "train": {"batch": self.batch, "stop": {"steps": STEPS}, "evaluate": {"at_end": None}},
            "sharding": {"tables": {name: {"types": [self.kind]} for name in names}},
        }
        return Recipe.model_validate(raw)

    def plan(self, world: int) -> Plan:
        """Its plan on so many ranks of one machine."""
        return make_plan(
            self.recipe(), replace(KINDS["cpu"], world=world, ranks_per_node=world, hbm_bytes=PLENTY_BYTES)
        )


SAMPLES: dict[str, Sample] = {
    "small": Sample(2, 10_000, 8, 1, "table_wise", 256, (8,), (8, 1), "cat"),
    "narrow": Sample(16, 800_000, 16, 1, "table_wise", 4_096, (32, 16), (32, 1), "dot"),
    "wide": Sample(6, 120_000, 128, 8, "table_wise", 4_096, (64, 32), (128, 64, 1), "cat"),
    "many": Sample(60, 600_000, 8, 1, "table_wise", 2_048, (16, 8), (32, 1), "cat"),
    "many-large": Sample(80, 800_000, 24, 1, "table_wise", 4_096, (16, 8), (32, 1), "cat"),
    "bags": Sample(4, 1_000_000, 32, 40, "table_wise", 2_048, (32, 16), (32, 1), "cat"),
    "mixed": Sample(26, 1_000_000, 32, 1, "table_wise", 2_048, (128, 32), (256, 128, 1), "dot"),
    "mixed-large": Sample(20, 400_000, 64, 1, "table_wise", 8_192, (32, 64), (64, 1), "dot"),
    "wide-large": Sample(5, 300_000, 160, 3, "table_wise", 8_192, (32, 32), (64, 1), "cat"),
    "slices": Sample(4, 100_000, 192, 2, "column_wise", 8_192, (32, 192), (32, 1), "dot"),
    "scattered": Sample(20, 2_000_000, 16, 1, "row_wise", 16_384, (32, 16), (32, 1), "cat"),
    "scattered-bags": Sample(6, 300_000, 64, 10, "row_wise", 2_048, (32, 64), (32, 1), "dot"),
    "scattered-large": Sample(10, 1_000_000, 40, 1, "row_wise", 16_384, (32, 40), (32, 1), "dot"),
    "copied": Sample(10, 60_000, 48, 1, "data_parallel", 8_192, (32, 48), (32, 1), "dot"),
    "copied-large": Sample(16, 60_000, 24, 1, "data_parallel", 16_384, (32, 24), (32, 1), "dot"),
    "copied-bags": Sample(4, 10_000, 64, 5, "data_parallel", 4_096, (32, 16), (64, 1), "cat"),
    "layers": Sample(4, 20_000, 16, 1, "table_wise", 2_048, (256, 64, 16), (768, 512, 256, 1), "cat"),
}
