"""What the planner may do with a table, and what it likes best."""

import pytest

from dlrmx.plan.options import Ask, choose, enumerate_demands
from dlrmx.recipe.schema import ShardingType
from plan_recipes import plan_recipe


def ask(types: list[ShardingType] | None = None, *, rows: int = 1000, dim: int = 16) -> Ask:
    constraints = {"a": {"types": types}} if types else {}
    recipe = plan_recipe({"a": rows}, dim=dim, batch=100, sharding={"tables": constraints})
    return Ask(recipe, world=2, memory_bytes=1 << 30)


@pytest.mark.parametrize(
    ("types", "large", "small_and_large"),
    [
        (None, "row_wise", "table_wise"),
        (["column_wise", "table_wise"], "column_wise", "table_wise"),
        (["column_wise", "row_wise"], "row_wise", "row_wise"),
        (["data_parallel"], "data_parallel", "data_parallel"),
        (["data_parallel", "column_wise"], "column_wise", "column_wise"),
    ],
)
def test_a_large_and_a_middling_table(
    types: list[ShardingType] | None, large: ShardingType, small_and_large: ShardingType
) -> None:
    (demand,) = enumerate_demands(ask(types))
    assert choose(demand, ask(types), large_bytes=demand.stored_bytes - 1) == large
    assert choose(demand, ask(types), large_bytes=demand.stored_bytes) == small_and_large


def test_column_wise_is_left_out_where_the_dim_cannot_be_cut() -> None:
    (demand,) = enumerate_demands(ask(["column_wise", "table_wise"], dim=4))
    assert demand.allowed == ("table_wise",)


def test_the_usable_bytes_leave_the_reserve() -> None:
    recipe = plan_recipe({"a": 10}, sharding={"reserve": 0.25})
    assert Ask(recipe, world=1, memory_bytes=1000).usable_bytes == 750


def test_look_up_cost_counts_rows_read_and_vectors_returned() -> None:
    recipe = plan_recipe({"a": {"rows": 10, "dtype": "fp16"}}, features={"x": "a", "y": "a"}, pooling={"y": 5.0})
    (demand,) = enumerate_demands(Ask(recipe, world=1, memory_bytes=1000))
    assert demand.lookup_cost == 16 * (1 * 2 + 4 + 5 * 2 + 4)
