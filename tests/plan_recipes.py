"""Small recipes for the planner's tests."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dlrmx.plan.topology import KINDS, Topology
from dlrmx.recipe.schema import Recipe


def processors(world: int, memory_bytes: int) -> Topology:
    """Ranks of `memory_bytes` each on one machine without devices."""
    return replace(KINDS["cpu"], world=world, ranks_per_node=world, hbm_bytes=memory_bytes)


def plan_recipe(
    tables: Mapping[str, int | dict[str, Any]],
    *,
    features: Mapping[str, str] | None = None,
    pooling: Mapping[str, float] | None = None,
    dim: int = 16,
    batch: int = 8,
    sparse: str = "rowwise_adagrad",
    sharding: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
) -> Recipe:
    """A recipe with these tables (rows, or all settings); one feature of the same name each unless `features` says."""
    raw = {
        "dlrmx": 1,
        "name": "plan",
        "data": {
            "kind": "synthetic",
            "rows": 1000,
            "pooling": {name: {"mean": mean, "max": 100} for name, mean in (pooling or {}).items()},
        },
        "dense": {"x": {}},
        "features": {name: {"table": table} for name, table in (features or {name: name for name in tables}).items()},
        "tables": {
            name: {"dim": dim, **(table if isinstance(table, dict) else {"rows": table})}
            for name, table in tables.items()
        },
        "model": model or {"kind": "dcnv2", "bottom": [8, 4], "top": [8, 1], "cross_layers": 1, "cross_rank": 2},
        "optimizer": {"dense": {"kind": "sgd", "lr": 0.1}, "sparse": {"kind": sparse, "lr": 0.1}},
        "train": {"batch": batch, "stop": {"steps": 1}},
        "sharding": {"reserve": 0.0, **(sharding or {})},
    }
    return Recipe.model_validate(raw)
