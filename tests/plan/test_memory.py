"""Bytes of tables, of the dense part and of batches, against hand counts and the model that torch builds."""

from typing import Any

import pytest

from dlrmx.model.build import build_model
from dlrmx.plan.memory import dense_bytes, num_parameters, pipeline_bytes, table_bytes
from dlrmx.plan.shards import Strip, TablePlan
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
    assert num_parameters(recipe) == wanted
    # SGD: weights, gradients, flat buffer
    assert dense_bytes(recipe, world=2)[0] == 3 * wanted * 4


# By hand, per sample. dot: what the bottom gives (20 + 16) and the top's input (6 pairs of 4 vectors + 16) are there
# while three copies of 4 vectors of 16 meet 4 x 4 products. cat: 20 + 6, an input of 54, outputs and two gradients of
# at most 9. Without dense columns: 3 vectors, 3 pairs; 48 numbers.
ACTIVATIONS = {
    ("dot", 1): 36 + 22 + 3 * 64 + 16,
    ("dot", 0): 3 + 3 * 48 + 9,
    ("cat", 1): 26 + 54 + 15 + 18,
    ("cat", 0): 48 + 15 + 18,
}


@pytest.mark.parametrize(("name", "num_dense"), ACTIVATIONS)
def test_activations_at_the_busiest_moment(name: str, num_dense: int) -> None:
    recipe = plan_recipe({"a": 10, "b": 20, "c": 5}, model=MODELS[name])
    recipe = recipe if num_dense else recipe.model_copy(update={"dense": {}})
    local_batch = recipe.train.batch // 2
    assert dense_bytes(recipe, world=2)[1] == local_batch * 4 * ACTIVATIONS[name, num_dense]


def test_batches_that_are_read_ahead() -> None:
    """Five of 3 rows: 2.5 ids, a dense value and a label each."""
    assert pipeline_bytes(plan_recipe({"a": 10}, batch=5), 2, 2.5) == 5 * 3 * (2.5 * 4 + 4 + 4)


def test_batches_for_a_gpu_wait_in_the_hosts_memory() -> None:
    """On the device: a dense value and a label of 3 rows."""
    assert pipeline_bytes(plan_recipe({"a": 10}, batch=5), 2, 2.5, "cuda") == 3 * (4 + 4)
