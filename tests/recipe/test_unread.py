"""A setting that nothing reads is an error; at its default it is not."""

from pathlib import Path
from typing import Any

import pytest

REPLICATED = "sharding.tables={user: {types: [data_parallel]}, item: {types: [data_parallel]}}"
NO_TEST = ["train.evaluate.at_end=null"]
SYNTHETIC = [
    (["optimizer.dense={kind: sgd, lr: 1, eps: 1e-4}"], "optimizer.dense.eps"),
    (["optimizer.dense.weight_decay=0.1"], "optimizer.dense.weight_decay"),
    (["optimizer.sparse={kind: sgd, lr: 1, eps: 1e-4}"], "optimizer.sparse.eps"),
    (["optimizer.schedule={kind: warmup_hold_decay, warmup: 3, power: 1}"], "optimizer.schedule.power"),
    (["optimizer.schedule={kind: warmup_hold_decay, warmup: 3, floor: 0.1}"], "optimizer.schedule.floor"),
    (["dense.price.mean=1"], "dense.price.mean"),
    (["dense.price.std=2"], "dense.price.std"),
    (["dense.price.transform=log1p"], "dense.price.transform"),
    (["dense.price.missing=1"], "dense.price.missing"),
    (["dense={}", "data.teacher={dense: 1}"], "data.teacher.dense"),
    (["data.split.on=user"], "data.split.on"),
    (["data.split.first=test"], "data.split.first"),
    (["data.split={by: fraction, validation: 0.1, test: 0, first: test}", *NO_TEST], "data.split.first"),
    (["features.item.column=x"], "features.item.column"),
    (["features.item.ids=vocabulary"], "features.item.ids"),
    (["features.item.min_count=2"], "features.item.min_count"),
    (['features.item.separator=","'], "features.item.separator"),
    (["features.item.max_ids=2"], "features.item.max_ids"),
    (["features.item.expand=2"], "features.item.expand"),
    (["features.item.missing=drop"], "features.item.missing"),
    (["defaults.feature.max_ids=2"], "defaults.feature.max_ids"),
    (["tables.item.bad_ids=clamp"], "tables.item.bad_ids"),
    (["checkpoint.best=null", "train.evaluate={on: test}"], "train.evaluate.on"),
    (["sharding.tables.item={types: [row_wise], slices: 2}"], "sharding.tables.item.slices"),
    (["sharding.tables.item={slices: 2}"], "sharding.tables.item.slices"),
    (["sharding.tables.item={}"], "sharding.tables.item"),
    (["sharding.tables.item={types: [table_wise], route: by_node}"], "sharding.tables.item.route"),
    (["sharding.tables.item={types: [data_parallel], tier: uvm}"], "sharding.tables.item.tier"),
    (["sharding.tables.item={tier: uvm, cache_ratio: 0.1}"], "sharding.tables.item.cache_ratio"),
    (["optimizer.sparse={kind: sgd, lr: 1}", "sharding.split_sums=true"], "sharding.split_sums"),
    (["sharding={plan: p.json, tables: {item: {types: [row_wise]}}}"], "sharding.tables"),
    (["sharding={plan: p.json, reserve: 0.5}"], "sharding.reserve"),
    (["exchange={chunks: 2, threshold: {forward: {sparsity: 0.5, every: 1}}}"], "exchange.chunks"),
    ([REPLICATED, "exchange.forward=int4"], "exchange.forward"),
    ([REPLICATED, "exchange.backward=fp16"], "exchange.backward"),
    ([REPLICATED, "exchange.chunks=2"], "exchange.chunks"),
    ([REPLICATED, "exchange.threshold.forward.sparsity=0.5"], "exchange.threshold.forward"),
    ([REPLICATED, "exchange.threshold.backward.sparsity=0.5"], "exchange.threshold.backward"),
]


@pytest.mark.parametrize(("overrides", "key"), SYNTHETIC)
def test_on_synthetic_data(problems: Any, overrides: list[str], key: str) -> None:
    found = problems(*overrides)
    assert [found_key for found_key, _ in found] == [key]
    assert "has no effect" in found[0][1]


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["defaults.feature.ids=hash"], "defaults.feature.min_count"),
        (["defaults.feature={}", "features.user={min_count: 2}"], "features.user.min_count"),
        (["features.user.max_ids=3"], "features.user.max_ids"),
        (["tables.user.bad_ids=clamp"], "tables.user.bad_ids"),
        (["data.split={by: fraction, on: user}"], "data.split.on"),
        (["features.user.expand=2"], "features.user.expand"),
        (["data.format=tsv", "data.files=[x]", "features.user.max_ids=3"], "features.user.max_ids"),
    ],
)
def test_on_files(problems: Any, tabular: Path, overrides: list[str], key: str) -> None:
    found = problems(*overrides, path=tabular)
    assert [found_key for found_key, _ in found] == [key]
    assert "has no effect" in found[0][1]


@pytest.mark.parametrize(
    "overrides",
    [
        ["features.user={ids: hash}"],  # min_count is inherited, and read by genres
        ["features.user.max_ids=3", "data.format=parquet"],
        ["features.user.max_ids=3", "data.files=[x.parquet]"],
        ["data.split.on=user"],
        ["features.user.column=u"],
        ["features.user={ids: identity, min_count: 1}", "tables.user.bad_ids=clamp"],
    ],
)
def test_settings_that_are_read(problems: Any, tabular: Path, overrides: list[str]) -> None:
    assert problems(*overrides, path=tabular) == []


def test_defaults_written_out_are_fine(problems: Any) -> None:
    written = [
        "optimizer.sparse={kind: sgd, lr: 1, eps: 1e-8}",
        "features.item.min_count=1",
        "train.evaluate.on=validation",
    ]
    assert problems(*written) == []
