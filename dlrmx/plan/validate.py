"""Whether a plan is one for a recipe and a number of ranks: every table, cut without gap or overlap."""

from collections.abc import Iterator
from itertools import combinations
from typing import get_args

from dlrmx.errors import Problem
from dlrmx.plan.forms import COLUMN_STEP
from dlrmx.plan.shards import Kind, Plan, Route, Strip, TablePlan, Tier
from dlrmx.plan.topology import Topology
from dlrmx.recipe.schema import Recipe

MOST_NODE_ROWS = 2**31 - 1  # ids travel as int32


def plan_problems(plan: Plan, recipe: Recipe, topology: Topology | None = None) -> list[Problem]:
    """Everything in which the plan differs from the recipe, or from the ranks that are to run it where they are given;
    empty for a good plan."""
    problems = _misfits(plan, topology) if topology else []
    for name in [name for name in recipe.tables if name not in plan.tables]:
        problems.append(Problem("the plan lacks this table of the recipe", key=f"tables.{name}"))
    for name, table in plan.tables.items():
        if name in recipe.tables:
            wrong = [*_differences(table, name, recipe), *_cutting_problems(table, plan)]
        else:
            wrong = ["the recipe has no such table"]
        problems += [Problem(what, key=f"tables.{name}") for what in wrong]
    return problems


def _misfits(plan: Plan, topology: Topology) -> list[Problem]:
    """In what the plan is not for these ranks."""
    found = []
    if plan.world != topology.world:
        what = f"is for {plan.world} ranks, not {topology.world}"
        found.append(Problem(what, key="world", hint="make a plan for them"))
    if topology.ddr_bytes:
        return found
    for name, table in plan.tables.items():
        if lower := sorted({strip.tier for strip in table.strips} - {"hbm"}):
            where = "processors have" if topology.device == "cpu" else "these devices have"
            found.append(Problem(f"lies in {', '.join(lower)}: {where} hbm only", key=f"tables.{name}"))
    return found


def _differences(table: TablePlan, name: str, recipe: Recipe) -> Iterator[str]:
    wanted = recipe.tables[name]
    for key, here, there in (
        ("rows", table.rows, wanted.rows),
        ("dim", table.dim, wanted.dim),
        ("dtype", table.dtype, wanted.dtype),
    ):
        if here != there:
            yield f"{key} {here}, but the recipe says {there}"


def _cutting_problems(table: TablePlan, plan: Plan) -> Iterator[str]:
    world = plan.world
    if table.kind not in get_args(Kind):
        yield f"unknown kind '{table.kind}'; there are {', '.join(get_args(Kind))}"
    if table.route not in get_args(Route):
        yield f"unknown route '{table.route}'; there are {', '.join(get_args(Route))}"
    if table.kind == "data_parallel":
        if table.strips:
            yield "a data_parallel table has no strips"
        return
    for tier in sorted({strip.tier for strip in table.strips} - set(get_args(Tier))):
        yield f"unknown memory tier '{tier}'; there are {', '.join(get_args(Tier))}"
    outside = [strip for strip in table.strips if not _inside(strip, table, world)]
    for strip in outside:
        within = f"{table.rows} x {table.dim} and {world} ranks, in steps of {COLUMN_STEP} columns"
        yield f"{_text(strip)} is not within {within}"
    if outside:
        return
    yield from _node_problems(table, plan.ranks_per_node)
    for one, other in combinations(table.strips, 2):
        if _overlap(one, other):
            yield f"{_text(one)} and {_text(other)} overlap"
    area = sum((strip.row_end - strip.row_start) * (strip.col_end - strip.col_start) for strip in table.strips)
    if area != table.rows * table.dim:
        yield f"the strips cover {area} of {table.rows * table.dim} elements"


def _node_problems(table: TablePlan, ranks_per_node: int) -> Iterator[str]:
    for strip in table.strips:
        first, last = strip.first_rank // ranks_per_node, (strip.first_rank + strip.num_ranks - 1) // ranks_per_node
        if table.kind in ("table_row_wise", "grid") and first < last:
            yield f"{_text(strip)} is not on one node of {ranks_per_node} ranks, as {table.kind} is"
        rows = (strip.row_end - strip.row_start) * min(ranks_per_node, strip.num_ranks) // strip.num_ranks
        if table.route == "by_node" and rows > MOST_NODE_ROWS:
            yield f"{_text(strip)} has {rows:,} rows on a node: route by_node takes at most {MOST_NODE_ROWS:,}"


def _inside(strip: Strip, table: TablePlan, world: int) -> bool:
    return (
        0 <= strip.row_start < strip.row_end <= table.rows
        and 0 <= strip.col_start < strip.col_end <= table.dim
        and strip.col_start % COLUMN_STEP == strip.col_end % COLUMN_STEP == 0
        and strip.num_ranks >= 1
        and 0 <= strip.first_rank <= world - strip.num_ranks
    )


def _overlap(one: Strip, other: Strip) -> bool:
    rows = one.row_start < other.row_end and other.row_start < one.row_end
    return rows and one.col_start < other.col_end and other.col_start < one.col_end


def _text(strip: Strip) -> str:
    ranks = f"ranks {strip.first_rank} to {strip.first_rank + strip.num_ranks - 1}"
    return f"strip rows {strip.row_start}:{strip.row_end} x columns {strip.col_start}:{strip.col_end} on {ranks}"
