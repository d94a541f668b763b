"""The fingerprint covers what a resume may not change, and nothing else."""

from pathlib import Path

import pytest

from dlrmx.recipe.fingerprint import changed_fixed, fingerprint
from dlrmx.recipe.load import load_recipe

FREE = [
    "name=other",
    "optimizer.dense.lr=1",
    "optimizer.sparse.eps=1",
    "optimizer.schedule={kind: warmup_hold_decay, warmup: 3}",
    "train.stop={steps: 3}",
    "train.evaluate.every={steps: 3}",
    "sharding.tables.item={types: [row_wise]}",
    "sharding.reserve=0.5",
    "checkpoint.keep=9",
    "retry.stop_on_repeat=false",
    "log.every.steps=1",
    "cluster.workers_per_node=3",
    "cluster={workers_per_node: 3}",
    "defaults.feature={pooling: sum}",
]
FIXED = [
    ("seed=8", "seed: 7 -> 8"),
    ("data.rows=30_000", "data.rows: 20000 -> 30000"),
    ("data.pooling.item={mean: 1, max: 2}", "data.pooling.item.mean: (absent) -> 1.0"),
    ("optimizer.sparse.kind=adagrad", 'optimizer.sparse.kind: "rowwise_adagrad" -> "adagrad"'),
    ("train.batch=256", "train.batch: 512 -> 256"),
    ("train.precision=bf16", 'train.precision: "fp32" -> "bf16"'),
    ("tables.user.rows=51", "tables.user.rows: 50 -> 51"),
    ("model.top=[64, 1]", "model.top: [32, 1] -> [64, 1]"),
    ("defaults.feature={pooling: mean}", 'features.item.pooling: "sum" -> "mean"'),
    (
        "features={history: {table: item, pooling: mean}, item: {}, user: {}}",
        'features (order): ["item", "history", "user"] -> ["history", "item", "user"]',
    ),
]


@pytest.mark.parametrize("override", FREE)
def test_free_settings_are_outside(example: Path, override: str) -> None:
    before, after = load_recipe(example).recipe, load_recipe(example, [override]).recipe
    assert before != after or override.startswith("cluster.")
    assert fingerprint(before) == fingerprint(after)
    assert changed_fixed(before, after) == []


@pytest.mark.parametrize(("override", "change"), FIXED)
def test_fixed_settings_are_inside_and_named(example: Path, override: str, change: str) -> None:
    before, after = load_recipe(example).recipe, load_recipe(example, [override]).recipe
    assert fingerprint(before) != fingerprint(after)
    assert change in changed_fixed(before, after)


def test_a_section_that_comes_or_goes_is_told_by_its_settings(example: Path) -> None:
    without, sparse = (
        load_recipe(example, [f"exchange.threshold.dense={way}"]).recipe for way in ("null", "{sparsity: 0.5}")
    )
    key = "exchange.threshold.dense"
    assert changed_fixed(without, sparse) == [f"{key}.sparsity: (absent) -> 0.5", f"{key}.every: (absent) -> 1000"]
    assert changed_fixed(sparse, without) == [f"{key}.sparsity: 0.5 -> (absent)", f"{key}.every: 1000 -> (absent)"]


def test_the_order_of_tables_does_not_count(example: Path) -> None:
    swapped = load_recipe(example, ["tables={user: {rows: 50}, item: {rows: 1000}}"]).recipe
    assert fingerprint(swapped) == fingerprint(load_recipe(example).recipe)


def test_its_form(example: Path) -> None:
    text = fingerprint(load_recipe(example).recipe)
    assert len(text) == 12
    assert set(text) <= set("0123456789abcdef")
