"""What the exchange sends: only touched bags, so that row-wise one-hot tables cost the same on any number of ranks."""

import statistics
import time
from typing import Any

import numpy as np
import pytest
import torch

from dlrmx.data.batches import Bags, Batch
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Plan, Strip, TablePlan
from dlrmx.recipe.schema import Recipe
from dlrmx.train.build import build_parts
from dlrmx.train.step import Slice, train_step
from ranks import run_ranks, sent_bytes

NUM_TABLES, DIM, LOCAL_BATCH = 8, 16, 512


def one_hot_recipe(rows: int, dim: int, *, width: int = 16) -> Recipe:
    names = [f"t{index}" for index in range(NUM_TABLES)]
    return Recipe.model_validate(
        {
            "dlrmx": 1,
            "name": "one-hot",
            "data": {"kind": "synthetic", "rows": 1000},
            "features": {name: {} for name in names},
            "tables": {name: {"rows": rows, "dim": dim} for name in names},
            "model": {"kind": "dlrm", "bottom": [width, dim], "top": [width, 1]},
            "optimizer": {
                "dense": {"kind": "sgd", "lr": 0.01},
                "sparse": {"kind": "rowwise_adagrad", "lr": 0.01},
            },
            "train": {"batch": 4096, "stop": {"steps": 10}},
        }
    )


def plan_of(recipe: Recipe, kind: str, world: int) -> Plan:
    tables = {}
    for index, (name, table) in enumerate(recipe.tables.items()):
        first, count = (0, world) if kind == "row_wise" else (index % world, 1)
        strip = Strip(0, table.rows, 0, table.dim, first, count)
        tables[name] = TablePlan(table.rows, table.dim, "fp32", kind, strips=(strip,))  # type: ignore[arg-type]
    return Plan(world, tables)


def one_hot_batch(recipe: Recipe, size: int, seed: list[int], *, length: int = 1) -> Batch:
    rng = np.random.default_rng(seed)
    bags = {}
    for name, feature in recipe.features.items():
        ids = rng.integers(0, recipe.tables[feature.table].rows, size * length)
        bags[name] = Bags(ids, np.full(size, length, np.int32), None)
    return Batch((rng.random(size) < 0.5).astype(np.float32), rng.normal(size=(size, 4)).astype(np.float32), bags)


def build(recipe: Recipe, kind: str, wire: Wire) -> Any:
    parts = build_parts(recipe, plan_of(recipe, kind, wire.world), wire=wire, dense_dim=4, device=torch.device("cpu"))
    parts.embeddings.initialise(0)
    return parts


def sent(kind: str, length: int) -> dict[str, int]:
    """Bytes that this rank sends in one step, by kind of exchange."""
    wire, recipe = Wire(), one_hot_recipe(1000, DIM)
    parts = build(recipe, kind, wire)
    batch = one_hot_batch(recipe, LOCAL_BATCH, [wire.rank], length=length)
    sent_bytes(wire)
    train_step(parts, Slice(batch, LOCAL_BATCH * wire.world, ""), step=0, rate=1.0)
    return sent_bytes(wire)


def test_one_hot_traffic_does_not_grow_with_the_number_of_ranks() -> None:
    totals = {}
    for world in (2, 4, 8):
        by_rank = [sum(n for k, n in rank.items() if k != "dense") for rank in run_ranks(world, sent, "row_wise", 1)]
        totals[world] = statistics.mean(by_rank)
    assert max(totals.values()) <= 1.10 * min(totals.values()), totals
    # By hand: an id of 4 bytes, a vector and a gradient of DIM fp32 numbers each; lengths are not sent.
    payload = LOCAL_BATCH * NUM_TABLES * (4 + 2 * 4 * DIM)
    assert totals[2] == pytest.approx(payload, rel=0.01)


def test_lengths_travel_only_for_bags_of_several() -> None:
    ranks = run_ranks(1, both_lengths)
    one, three = ranks[0]
    assert one["ids"] == LOCAL_BATCH * NUM_TABLES * 4
    assert three["ids"] == LOCAL_BATCH * NUM_TABLES * (3 * 4 + 4)
    assert three["vectors"] == one["vectors"] == LOCAL_BATCH * NUM_TABLES * 4 * DIM
    assert one["gradients"] == one["vectors"] + 4  # and the flag


def both_lengths() -> tuple[dict[str, int], dict[str, int]]:
    return sent("table_wise", 1), sent("table_wise", 3)


def step_times(rows: int, dim: int, size: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of single steps, the two sharding types in turn, in one process group."""
    wire, recipe = Wire(), one_hot_recipe(rows, dim, width=256)
    kinds = ("table_wise", "row_wise")
    parts = {kind: build(recipe, kind, wire) for kind in kinds}
    batch = one_hot_batch(recipe, size, [wire.rank])
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(rounds + 2):
        for kind in kinds:
            wire.agree(0)
            began = time.perf_counter()
            train_step(parts[kind], Slice(batch, size * wire.world, ""), step=turn, rate=1.0)
            wire.agree(0)
            times[kind].append(time.perf_counter() - began)
    return {kind: values[2:] for kind, values in times.items()}


@pytest.mark.slow
def test_a_row_wise_step_takes_at_most_a_quarter_longer_than_table_wise() -> None:
    times = run_ranks(2, step_times, 1_000_000, 64, 2048, 30)[0]
    ratio = statistics.median(times["row_wise"]) / statistics.median(times["table_wise"])
    print(f"row_wise / table_wise: {ratio:.2f}")
    assert ratio <= 1.25
