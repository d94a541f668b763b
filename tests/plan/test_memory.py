"""Bytes per rank against hand counts and against the model that torch builds."""

from typing import Any

import pytest

from dlrmx.model.build import build_model
from dlrmx.plan.memory import (
    RankMemory,
    dense_layers,
    dense_memory,
    poolings,
    rank_memory,
    rectangle_memory,
    replica_memory,
    sender_memory,
    table_bytes,
)
from dlrmx.plan.shards import Plan, Rectangle, Strip, TablePlan
from dlrmx.recipe.schema import Table
from plan_recipes import plan_recipe

WHOLE = TablePlan(100, 8, "fp32", "table_wise", strips=(Strip(0, 100, 0, 8, 0, 1),))
HALVES = TablePlan(100, 8, "fp16", "column_wise", strips=(Strip(0, 100, 0, 4, 0, 1), Strip(0, 100, 4, 8, 1, 1)))


@pytest.mark.parametrize(
    ("table", "optimizer", "expected"),
    [
        (Table(rows=100, dim=8), "sgd", 3200),
        (Table(rows=100, dim=8), "adagrad", 6400),
        (Table(rows=100, dim=8), "rowwise_adagrad", 3600),
        (Table(rows=100, dim=8, dtype="fp16"), "adagrad", 1600 + 3200),  # sums stay in fp32
        (WHOLE, "rowwise_adagrad", 3600),
        (HALVES, "rowwise_adagrad", 1600 + 800),  # each slice has its own sums
        (TablePlan(100, 8, "fp32", "data_parallel"), "rowwise_adagrad", 3600),
    ],
)
def test_table_bytes(table: Table | TablePlan, optimizer: Any, expected: int) -> None:
    assert table_bytes(table, optimizer) == expected


def test_the_criteo_terabyte_tables_of_mlperf() -> None:
    """204,184,588 rows of 128 in fp32 are 104.5 GB."""
    assert table_bytes(Table(rows=204_184_588, dim=128), "sgd") == pytest.approx(104.5e9, rel=1e-3)


def test_a_rectangle() -> None:
    """Rows 0 to 25 of 100, columns 0 to 4 of 8; batch 40; features of 1 and of 8 ids a sample."""
    part = Rectangle("a", 0, 25, 0, 4, 0, "hbm")
    memory = rectangle_memory(part, WHOLE, [1.0, 8.0], batch=40, optimizer="rowwise_adagrad")
    bags = 40 * 0.25 + 40  # a quarter of the one-hot bags, every bag of 8
    ids = 40 * 0.25 + 40 * 8 * 0.25
    assert memory == RankMemory(25 * 4 * 4, 25 * 4, 0, int(2 * bags * 4 * 4 + 2 * ids * 4))


def test_the_sender_of_a_row_wise_table() -> None:
    table = TablePlan(100, 8, "fp32", "row_wise", strips=(Strip(0, 100, 0, 8, 0, 4),))
    memory = sender_memory(table, [1.0, 8.0], local_batch=10)
    vectors = 10 * 1 + 10 * 4  # one range for one id; at most all 4 ranges for 8 ids
    assert memory == RankMemory(exchange_bytes=2 * vectors * 8 * 4 + (10 + 80) * 4)


def test_the_sender_of_column_slices_sends_ids_to_each() -> None:
    assert sender_memory(HALVES, [1.0], local_batch=10).exchange_bytes == 2 * 10 * 8 * 4 + 2 * 10 * 4


def test_a_replica() -> None:
    table = TablePlan(100, 8, "fp16", "data_parallel")
    assert replica_memory(table, "adagrad") == RankMemory(1600, 3200, 2 * 3200, 0)


MODELS: dict[str, dict[str, Any]] = {
    "dot": {"kind": "dlrm", "bottom": [20, 16], "top": [9, 1]},
    "cat": {"kind": "dlrm", "bottom": [20, 6], "top": [9, 5, 1], "interaction": "cat"},
    "dcnv2": {"kind": "dcnv2", "bottom": [20, 6], "top": [9, 1], "cross_layers": 3, "cross_rank": 7},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_dense", [1, 0])
def test_dense_layers_are_those_that_torch_builds(name: str, num_dense: int) -> None:
    recipe = plan_recipe({"a": 10, "b": 20, "c": 5}, model=MODELS[name])
    recipe = recipe if num_dense else recipe.model_copy(update={"dense": {}})
    built = build_model(recipe.model, dense_dim=num_dense, dims=[16, 16, 16], seed=0)
    wanted = sum(parameter.numel() for parameter in built.parameters())
    assert sum(m * n + n * bias for m, n, bias in dense_layers(recipe)) == wanted
    # SGD: weights, gradients, flat buffer; activations of 4 rows
    activations = 4 * 2 * sum(m + n for m, n, _ in dense_layers(recipe))
    assert dense_memory(recipe, world=2).dense_bytes == (3 * wanted + activations) * 4


def test_ranks_add_up_to_the_tables() -> None:
    recipe = plan_recipe({"a": 101, "b": {"rows": 50, "dim": 12}, "c": 7}, batch=9)
    plan = Plan(
        3,
        {
            "a": TablePlan(101, 16, "fp32", "row_wise", strips=(Strip(0, 101, 0, 16, 0, 3),)),
            "b": TablePlan(50, 12, "fp32", "column_wise", strips=(Strip(0, 50, 0, 4, 2, 1), Strip(0, 50, 4, 12, 1, 1))),
            "c": TablePlan(7, 16, "fp32", "data_parallel"),
        },
    )
    memory = rank_memory(plan, recipe)
    assert [rank.weights_bytes for rank in memory] == [
        33 * 64 + 7 * 64,
        34 * 64 + 50 * 32 + 7 * 64,
        34 * 64 + 50 * 16 + 7 * 64,
    ]
    assert [rank.state_bytes for rank in memory] == [33 * 4 + 28, 34 * 4 + 200 + 28, 34 * 4 + 200 + 28]
    assert len({rank.dense_bytes for rank in memory}) == 1
    assert memory[0].total_bytes == sum(
        (memory[0].weights_bytes, memory[0].state_bytes, memory[0].dense_bytes, memory[0].exchange_bytes)
    )


def test_pooling_comes_from_the_facts_then_the_recipe_then_one() -> None:
    class Feature:
        mean_pooling = 2.5

    class Known:
        features = {"x": Feature(), "y": Feature(), "z": Feature()}

    recipe = plan_recipe({"a": 10, "b": 10}, features={"x": "a", "y": "a", "z": "b"}, pooling={"y": 4.0})
    assert poolings(recipe, None) == {"a": [1.0, 4.0], "b": [1.0]}
    assert poolings(recipe, Known()) == {"a": [2.5, 2.5], "b": [2.5]}
