"""The forms that tables may take, by default and under constraints, and what they cost."""

from typing import Any

import pytest

from dlrmx.errors import InputError
from dlrmx.plan.options import Ask, Options, enumerate_options
from dlrmx.plan.topology import KINDS, Topology
from plan_recipes import plan_recipe, processors

ZIONEX = KINDS["zionex"].sized(world=16)


def options(
    constraint: dict[str, Any] | None = None, *, topology: Topology = ZIONEX, host: bool = False, **more: Any
) -> Options:
    sharding = {"tables": {"a": constraint}} if constraint else {}
    recipe = plan_recipe({"a": more.pop("rows", 1000)}, dim=more.pop("dim", 16), sharding=sharding, **more)
    return enumerate_options(Ask(recipe, topology), host=host)


def kinds(found: Options) -> set[str]:
    return {form.kind for form in found.forms}


def test_without_constraints_all_but_column_slices_of_row_sums() -> None:
    usual = {"data_parallel", "table_wise", "row_wise", "table_row_wise"}
    assert kinds(options()) == usual
    assert kinds(options(sparse="sgd")) == usual | {"column_wise", "grid"}
    assert kinds(options(topology=processors(2, 1 << 30))) == {"data_parallel", "table_wise", "row_wise"}
    assert kinds(options(topology=processors(1, 1 << 30))) == {"table_wise"}
    assert kinds(options(rows=1)) == {"data_parallel", "table_wise"}
    # Not every rank would get a row: over two ranks of a node at most.
    assert {form.group for form in options(rows=3).forms if form.kind == "table_row_wise"} == {2}
    assert "row_wise" not in kinds(options(rows=3))


def test_constraints_narrow_it() -> None:
    assert kinds(options({"types": ["column_wise"]})) == {"column_wise"}
    assert {form.slices for form in options({"types": ["column_wise", "grid"], "slices": 3}).forms} == {3}
    assert {form.route for form in options({"types": ["row_wise"]}).forms} == {"flat", "by_node"}
    assert {form.route for form in options({"types": ["row_wise"], "route": "by_node"}).forms} == {"by_node"}
    tiers = {(form.tier, form.cache_ratio) for form in options({"tier": "uvm_caching", "cache_ratio": 0.3}).forms}
    assert tiers == {(1, 0.3)}
    assert kinds(options({"types": ["table_row_wise"], "tier": "uvm"})) == {"table_row_wise"}
    assert kinds(options({"types": ["column_wise", "table_wise"]}, dim=4)) == {"table_wise"}


def test_host_memory_is_there_where_it_is_asked_for() -> None:
    assert {form.tier for form in options(host=True).forms} == {0, 1, 2}
    assert {form.tier for form in options({"tier": "hbm"}, host=True).forms} == {0}


@pytest.mark.parametrize(
    ("constraint", "dim", "key", "words"),
    [
        ({"types": ["column_wise"]}, 4, "sharding.tables.a.types", "table 'a': dim 4"),
        ({"types": ["column_wise"], "slices": 4}, 12, "sharding.tables.a.slices", "at most 3"),
        ({"tier": "uvm"}, 16, "sharding.tables.a.tier", "a processor has no other memory"),
        ({"types": ["row_wise"], "route": "by_node"}, 16, "sharding.tables.a.route", "there is one node"),
    ],
)
def test_constraints_that_ask_the_impossible(constraint: dict[str, Any], dim: int, key: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        options(constraint, dim=dim, topology=processors(2, 1 << 30))
    (problem,) = caught.value.problems
    assert problem.key == key
    assert words in problem.what


def test_the_usable_bytes_leave_the_reserve() -> None:
    recipe = plan_recipe({"a": 10}, sharding={"reserve": 0.25})
    assert Ask(recipe, processors(1, 1000)).usable_bytes == 750
    assert Ask(recipe, ZIONEX).usable_host_bytes == 187_500_000_000 * 3 // 4
