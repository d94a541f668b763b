"""What the sharding tests run: a recipe with odd tables, plans of every type, learnable batches."""

from typing import Any

import numpy as np
import torch

from dlrmx.data.batches import Bags, Batch
from dlrmx.plan.shards import Plan, Strip, TablePlan
from dlrmx.recipe.schema import Recipe

BATCH = 257
DENSE = 5
TABLES = {"three": (3, 64), "seven": (7, 12), "small": (1000, 4), "wide": (1000, 64)}
FEATURES: dict[str, dict[str, Any]] = {
    "a": {"table": "three"},
    "b": {"table": "seven", "pooling": "mean"},
    "c": {"table": "small"},
    "d": {"table": "wide"},
    "e": {"table": "wide", "pooling": "mean"},  # shares d's table
    "f": {"table": "wide", "weights": "w"},
    "g": {"table": "seven", "weights": "w", "pooling": "mean"},
    "h": {"table": "wide"},  # one-hot
}
KINDS = ("table_wise", "row_wise", "column_wise", "data_parallel", "mix")
MIX = {"three": "row_wise", "seven": "data_parallel", "small": "table_wise", "wide": "column_wise"}


def make_recipe(
    sparse: str = "sgd", dense: str = "sgd", *, lr: float = 0.05, model: dict[str, Any] | None = None
) -> Recipe:
    return Recipe.model_validate(
        {
            "dlrmx": 1,
            "name": "odd",
            "data": {"kind": "synthetic", "rows": 1000},
            "features": FEATURES,
            "tables": {name: {"rows": rows, "dim": dim} for name, (rows, dim) in TABLES.items()},
            "model": model or {"kind": "dcnv2", "bottom": [16, 8], "top": [16, 1], "cross_layers": 2, "cross_rank": 8},
            "optimizer": {"dense": {"kind": dense, "lr": lr}, "sparse": {"kind": sparse, "lr": lr}},
            "train": {"batch": BATCH, "stop": {"steps": 50}},
        }
    )


def make_plan(kind: str, world: int) -> Plan:
    """Every table cut in one way, or each in another (mix); written out here, not by the planner under test."""
    return Plan(
        world,
        {
            name: _cut(name, rows, dim, MIX[name] if kind == "mix" else kind, world)
            for name, (rows, dim) in TABLES.items()
        },
    )


def _cut(name: str, rows: int, dim: int, kind: str, world: int) -> TablePlan:
    owner = list(TABLES).index(name) % world
    strips: tuple[Strip, ...] = (Strip(0, rows, 0, dim, owner, 1),)
    if kind == "row_wise":
        strips = (Strip(0, rows, 0, dim, 0, world),)
    elif kind == "data_parallel":
        strips = ()
    elif kind == "column_wise" and dim > 4:
        middle = dim // 8 * 4
        strips = (Strip(0, rows, 0, middle, owner, 1), Strip(0, rows, middle, dim, (owner + 1) % world, 1))
    return TablePlan(rows, dim, "fp32", kind, strips=strips)  # type: ignore[arg-type]


def make_batch(step: int, rows: int = BATCH, *, dyadic: bool = False) -> Batch:
    """A global batch with bags of 0 to 7 ids, repeats among them; its labels follow its ids and dense values.

    dyadic: weights in {0.5, 1, 2}, and bags of mean pooling hold 0, 1, 2 or 4 ids, so that sums stay exact.
    """
    rng = np.random.default_rng([7, step])
    bags, score = {}, np.zeros(rows)
    for name, feature in FEATURES.items():
        table_rows = TABLES[feature["table"]][0]
        lengths = rng.integers(0, 8, rows)
        if dyadic and feature.get("pooling") == "mean":
            lengths = rng.choice([0, 1, 2, 4], rows)
        if name == "h":
            lengths[:] = 1
        ids = rng.integers(0, table_rows, lengths.sum())
        weights = None
        if "weights" in feature:
            weights = (rng.choice([0.5, 1.0, 2.0], len(ids)) if dyadic else rng.random(len(ids)) + 0.5).astype(
                np.float32
            )
        bags[name] = Bags(ids.astype(np.int64), lengths.astype(np.int32), weights)
        score += np.bincount(np.repeat(np.arange(rows), lengths), (ids % 3 - 1.0), minlength=rows)
    dense = rng.normal(size=(rows, DENSE)).astype(np.float32)
    labels = (score + dense[:, 0] + rng.logistic(size=rows) > 0).astype(np.float32)
    return Batch(labels, dense, bags)


def slice_of(batch: Batch, rank: int, world: int) -> Batch:
    """Rows floor(rank B / world) to floor((rank + 1) B / world)."""
    rows = len(batch.labels)
    first, last = rank * rows // world, (rank + 1) * rows // world
    bags = {}
    for name, bag in batch.bags.items():
        ends = np.concatenate([[0], np.cumsum(bag.lengths)])
        part = slice(ends[first], ends[last])
        weights = None if bag.weights is None else bag.weights[part]
        bags[name] = Bags(bag.ids[part], bag.lengths[first:last], weights)
    return Batch(batch.labels[first:last], batch.dense[first:last], bags)


def assert_near(got: torch.Tensor, single: torch.Tensor, double: torch.Tensor, sparse: str, name: str) -> None:
    """SGD and row-wise Adagrad: within 1e-5 of the largest magnitude. Adagrad divides by roots of tiny sums, so its
    bound is what rounding does to plain torch itself: 4 times the distance of its fp32 from its fp64 run."""
    distance = (got.double() - single.double()).abs().max()
    bound = 1e-5 * single.abs().max()
    if sparse == "adagrad":
        bound = 4 * (single.double() - double).abs().max()
        distance = (got.double() - double).abs().max()
    assert distance <= bound, f"{name}: {distance:.3g} > {bound:.3g}"
