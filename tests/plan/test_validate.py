"""plan_problems: each way in which a plan can be wrong is found, and a good plan has none."""

from dataclasses import replace

import pytest

from dlrmx.plan.planner import make_plan
from dlrmx.plan.shards import Plan, Strip, TablePlan
from dlrmx.plan.validate import plan_problems
from plan_recipes import plan_recipe, processors

RECIPE = plan_recipe({"a": 100, "b": 10})
GOOD = Plan(
    2,
    {
        "a": TablePlan(100, 16, "fp32", "column_wise", strips=(Strip(0, 100, 0, 8, 0, 1), Strip(0, 100, 8, 16, 1, 1))),
        "b": TablePlan(10, 16, "fp32", "data_parallel"),
    },
)


def texts(plan: Plan, world: int = 2) -> list[str]:
    return [f"{problem.key}: {problem.what}" for problem in plan_problems(plan, RECIPE, processors(world, 1 << 30))]


def with_a(*strips: Strip, **changes: object) -> Plan:
    table = replace(GOOD.tables["a"], strips=strips or GOOD.tables["a"].strips, **changes)  # type: ignore[arg-type]
    return replace(GOOD, tables={**GOOD.tables, "a": table})


def test_good_plans() -> None:
    assert texts(GOOD) == []
    assert texts(make_plan(RECIPE, processors(2, 1 << 30))) == []


def test_another_world() -> None:
    assert texts(GOOD, world=3) == ["world: is for 2 ranks, not 3"]


def test_tables_missing_and_unknown() -> None:
    moved = replace(GOOD, tables={"a": GOOD.tables["a"], "other": GOOD.tables["b"]})
    assert texts(moved) == [
        "tables.b: the plan lacks this table of the recipe",
        "tables.other: the recipe has no such table",
    ]


def on_nodes(kind: str, first_rank: int, num_ranks: int, rows: int = 100) -> Plan:
    """`a` over some of 12 ranks, on nodes of 8: the last has 4."""
    strip = Strip(0, rows, 0, 16, first_rank, num_ranks)
    table = TablePlan(rows, 16, "fp32", kind, "by_node", (strip,))  # type: ignore[arg-type]
    return Plan(12, {"a": table, "b": GOOD.tables["b"]}, ranks_per_node=8)


def test_table_row_wise_stays_in_a_node_and_the_last_node_may_be_smaller() -> None:
    for first_rank, num_ranks in ((0, 8), (8, 4), (2, 3)):
        assert texts(on_nodes("table_row_wise", first_rank, num_ranks), world=12) == []
    wrong = texts(on_nodes("table_row_wise", 4, 8), world=12)
    assert any("ranks 4 to 11 is not on one node of 8 ranks, as table_row_wise is" in text for text in wrong)
    assert texts(on_nodes("row_wise", 4, 8), world=12) == []


def test_rows_of_a_node_are_numbered_in_32_bits() -> None:
    wrong = texts(on_nodes("row_wise", 0, 12, rows=2**32), world=12)
    assert any("rows on a node: route by_node takes at most 2,147,483,647" in text for text in wrong)


@pytest.mark.parametrize(
    ("plan", "part"),
    [
        (with_a(rows=101), "rows 101, but the recipe says 100"),
        (with_a(dim=20), "dim 20, but the recipe says 16"),
        (with_a(dtype="fp16"), "dtype fp16, but the recipe says fp32"),
        (with_a(kind="diagonal"), "unknown kind 'diagonal'"),
        (with_a(route="by_foot"), "unknown route 'by_foot'"),
        (with_a(Strip(0, 100, 0, 8, 0, 1)), "cover 800 of 1600"),
        (with_a(Strip(0, 100, 0, 16, 0, 1), Strip(99, 100, 12, 16, 1, 1)), "overlap"),
        (with_a(Strip(0, 60, 0, 16, 0, 2), Strip(50, 90, 0, 16, 0, 1)), "overlap"),
        (with_a(Strip(0, 101, 0, 16, 0, 1)), "is not within"),
        (with_a(Strip(0, 100, 0, 6, 0, 1), Strip(0, 100, 6, 16, 0, 1)), "in steps of 4 columns"),
        (with_a(Strip(0, 100, 0, 16, 1, 2)), "ranks 1 to 2 is not within 100 x 16 and 2 ranks"),
        (with_a(Strip(0, 100, 0, 16, 0, 1, "uvm")), "lies in uvm: processors have hbm only"),
        (with_a(Strip(0, 100, 0, 16, 0, 1, "tape")), "unknown memory tier 'tape'"),  # type: ignore[arg-type]
        (with_a(kind="data_parallel"), "a data_parallel table has no strips"),
    ],
)
def test_each_fault_is_named(plan: Plan, part: str) -> None:
    found = texts(plan)
    assert any(text.startswith("tables.a: ") and part in text for text in found), found
