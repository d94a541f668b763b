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
# Cut over the ranks of nodes of two; _by_node: sums are added in the node that holds the rows.
# bands: the first rows apart from the others, as where they lie in another tier.
NODE_KINDS = (
    "bands",
    "table_row_wise",
    "grid",
    "table_row_wise_by_node",
    "grid_by_node",
    "row_wise_by_node",
    "mix_by_node",
)
RANKS_PER_NODE = 2
MIX = {"three": "row_wise", "seven": "data_parallel", "small": "table_wise", "wide": "column_wise"}
NODE_MIX = {"three": "grid_by_node", "seven": "row_wise", "small": "row_wise_by_node", "wide": "grid_by_node"}


def make_recipe(
    sparse: str = "sgd",
    dense: str = "sgd",
    *,
    lr: float = 0.05,
    dtype: str = "fp32",
    model: dict[str, Any] | None = None,
) -> Recipe:
    return Recipe.model_validate(
        {
            "dlrmx": 1,
            "name": "odd",
            "data": {"kind": "synthetic", "rows": 1000},
            "features": FEATURES,
            "tables": {n: {"rows": rows, "dim": dim, "dtype": dtype} for n, (rows, dim) in TABLES.items()},
            "model": model or {"kind": "dcnv2", "bottom": [16, 8], "top": [16, 1], "cross_layers": 2, "cross_rank": 8},
            "optimizer": {"dense": {"kind": dense, "lr": lr}, "sparse": {"kind": sparse, "lr": lr}},
            "train": {"batch": BATCH, "stop": {"steps": 50}},
        }
    )


def make_plan(kind: str, world: int, dtype: str = "fp32") -> Plan:
    """Every table cut in one way, or each in another (mix); written out here, not by the planner under test."""
    mixed = {"mix": MIX, "mix_by_node": NODE_MIX}.get(kind, dict.fromkeys(TABLES, kind))
    tables = {name: _cut(name, rows, dim, mixed[name], world, dtype) for name, (rows, dim) in TABLES.items()}
    return Plan(world, tables, ranks_per_node=RANKS_PER_NODE if kind in NODE_KINDS else 1)


def _cut(name: str, rows: int, dim: int, kind: str, world: int, dtype: str) -> TablePlan:
    owner = list(TABLES).index(name)
    nodes = -(-world // RANKS_PER_NODE)
    base, middle = kind.removesuffix("_by_node"), dim // 8 * 4
    spans = [(0, middle), (middle, dim)] if base in ("column_wise", "grid") and dim > 4 else [(0, dim)]
    strips: list[Strip] = []
    for part, (first, last) in enumerate(spans if base != "data_parallel" else []):
        node = (owner + part) % nodes * RANKS_PER_NODE
        on = {"row_wise": (0, world), "table_row_wise": (node, min(RANKS_PER_NODE, world - node))}
        on["grid"] = on["table_row_wise"]
        band = rows // 3 if base == "bands" and rows > 3 else rows
        strips.append(Strip(0, band, first, last, *on.get(base, ((owner + part) % world, 1))))
        if band < rows:
            strips.append(Strip(band, rows, first, last, 0, world))
    route = "by_node" if kind.endswith("_by_node") else "flat"
    return TablePlan(rows, dim, dtype, "row_wise" if base == "bands" else base, route, tuple(strips))  # type: ignore[arg-type]


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
