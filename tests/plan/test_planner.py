"""make_plan: every table covered once, memory respected, the same plan each time, balanced, odd shapes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrmx.errors import InputError
from dlrmx.plan.arrange import Overflow
from dlrmx.plan.cost import predict
from dlrmx.plan.options import Ask
from dlrmx.plan.planner import make_plan, search
from dlrmx.plan.shards import Plan
from dlrmx.plan.topology import GB, KINDS, Topology
from dlrmx.plan.validate import plan_problems
from dlrmx.recipe.schema import Recipe
from plan_recipes import plan_recipe, processors

PLENTY = 1 << 40


def kinds(plan: Plan) -> dict[str, str]:
    return {name: table.kind for name, table in plan.tables.items()}


def covered(plan: Plan, name: str) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """How many rectangles hold each element."""
    table = plan.tables[name]
    count = np.zeros((table.rows, table.dim), dtype=np.int64)
    for part in table.rectangles(name):
        assert 0 <= part.rank < plan.world
        count[part.row_start : part.row_end, part.col_start : part.col_end] += 1
    return count


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """One to six tables of 1 to 400 rows and dims 4 to 64, some of them constrained to one type or two."""
    tables, constraints, pooling = {}, {}, {}
    for index in range(draw(st.integers(1, 6))):
        name = f"t{index}"
        dim = 4 * draw(st.integers(1, 16))
        dtype = draw(st.sampled_from(["fp32", "fp16"]))
        tables[name] = {"rows": draw(st.integers(1, 400)), "dim": dim, "dtype": dtype}
        pooling[name] = draw(st.sampled_from([1.0, 5.0]))
        able = ["table_wise", "row_wise", "data_parallel", *(["column_wise"] if dim > 4 else [])]
        types = draw(st.none() | st.lists(st.sampled_from(able), min_size=1, max_size=2, unique=True))
        if types:
            constraints[name] = {"types": types}
    sparse = draw(st.sampled_from(["sgd", "adagrad", "rowwise_adagrad"]))
    batch = draw(st.integers(1, 300))
    return plan_recipe(tables, pooling=pooling, sparse=sparse, batch=batch, sharding={"tables": constraints})


TOPOLOGIES = ("cpu", "zionex")


def topology(kind: str, world: int, memory_bytes: int, host_bytes: int = 0) -> Topology:
    return replace(KINDS[kind], world=world, ranks_per_node=3, hbm_bytes=memory_bytes, ddr_bytes=host_bytes)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    recipe=recipes(),
    kind=st.sampled_from(TOPOLOGIES),
    world=st.integers(1, 9),
    thousands=st.integers(1, 200),
    host=st.sampled_from([0, 30_000]),
)
def test_any_plan_covers_each_table_once_fits_and_obeys(
    recipe: Recipe, kind: str, world: int, thousands: int, host: int
) -> None:
    ranks = topology(kind, world, 1000 * thousands, host * (kind == "zionex"))
    plan = search(Ask(recipe, ranks))
    if isinstance(plan, Overflow):
        with pytest.raises(InputError, match="Possible solutions:"):
            make_plan(recipe, ranks)
        return
    assert plan == make_plan(recipe, ranks)
    assert plan_problems(plan, recipe, ranks) == []
    for memory in predict(plan, recipe, ranks).memory:
        assert memory.total_bytes <= ranks.hbm_bytes
        assert memory.host_bytes <= ranks.ddr_bytes
    assert list(plan.tables) == list(recipe.tables)
    sliced = recipe.optimizer.sparse.kind != "rowwise_adagrad"
    for name, table in plan.tables.items():
        if table.kind != "data_parallel":
            assert (covered(plan, name) == 1).all()
        if name in recipe.sharding.tables:
            assert table.kind in (recipe.sharding.tables[name].types or [])
        else:
            assert sliced or table.kind not in ("column_wise", "grid")
    assert Plan.from_json(plan.to_json()) == plan


# ------------------------------------------------------------------------------------ which form


def test_a_small_table_is_replicated_and_a_large_one_is_not() -> None:
    """Where links are slow: next to each other, processors exchange ids and vectors as fast as they copy them."""
    apart = replace(processors(2, PLENTY), up_rate=0.1e9)
    plan = make_plan(plan_recipe({"small": 40, "large": 100_000}, batch=4096), apart)
    assert kinds(plan)["small"] == "data_parallel"
    assert kinds(plan)["large"] != "data_parallel"


def test_a_table_that_dominates_is_split() -> None:
    """Of many ids in a bag: cut by rows both ranks look up. One-hot, adding vectors up takes as long as that saves."""
    recipe = plan_recipe({"a": 100_000, "b": 5_000}, dim=64, batch=4096, pooling={"a": 20.0})
    plan = make_plan(recipe, processors(2, PLENTY))
    assert kinds(plan)["a"] == "row_wise"


def test_tables_are_cut_where_memory_asks_for_it() -> None:
    """Three equal tables on two ranks that hold one and a half each, and no more."""
    recipe = plan_recipe(dict.fromkeys("abc", 10_000), pooling=dict.fromkeys("abc", 50.0))
    ranks = processors(2, Ask(recipe, processors(2, 0)).fixed_bytes + int(1.75 * 10_000 * 68))
    assert "row_wise" in set(kinds(make_plan(recipe, ranks)).values())


def test_facts_about_the_data_replace_the_guess() -> None:
    class Feature:
        hot: tuple[tuple[float, float], ...] = ()

        def __init__(self, mean_pooling: float) -> None:
            self.mean_pooling = mean_pooling

    class Known:
        features = {"a": Feature(50.0), "b": Feature(1.0), "c": Feature(1.0)}

    whole = {name: {"types": ["table_wise"]} for name in "abc"}
    recipe = plan_recipe({"a": 100, "b": 100, "c": 100}, batch=2, sharding={"tables": whole})

    def ranks(plan: Plan) -> list[int]:
        return [plan.tables[name].strips[0].first_rank for name in "abc"]

    known = ranks(make_plan(recipe, processors(2, PLENTY), Known()))
    assert known[1] == known[2] != known[0]  # a's look-ups weigh more than b's and c's together


def test_sums_are_added_inside_the_node_where_bags_are_long() -> None:
    """Rows over 4 nodes of 8: a bag of 100 touches all ranks and 4 nodes; one of a single id touches one."""
    only = {"tables": {"a": {"types": ["row_wise"]}}}
    for mean, route in ((100.0, "by_node"), (1.0, "flat")):
        recipe = plan_recipe({"a": 100_000}, dim=128, pooling={"a": mean}, batch=65_536, sharding=only)
        plan = make_plan(recipe, KINDS["zionex"].sized(world=32))
        assert plan.tables["a"].route == route


def test_a_table_too_large_for_device_memory_goes_to_the_host() -> None:
    recipe = plan_recipe({"a": {"rows": 100_000_000, "dim": 256}, "b": 1000}, sharding={"reserve": 0.15})
    eight = replace(KINDS["zionex"], hbm_bytes=10 * GB)
    plan = make_plan(recipe, eight)
    assert {strip.tier for strip in plan.tables["a"].strips} == {"uvm_caching"}
    with pytest.raises(InputError):
        make_plan(recipe, replace(eight, ddr_bytes=0))


def test_part_of_a_table_lies_in_device_memory_where_the_host_lacks() -> None:
    """102 GB on 8 ranks of 10 GB and 5 GB of the host's: neither holds it alone."""
    recipe = plan_recipe({"a": {"rows": 100_000_000, "dim": 256}})
    plan = make_plan(recipe, replace(KINDS["zionex"], hbm_bytes=10 * GB, ddr_bytes=5 * GB))
    assert [strip.tier for strip in plan.tables["a"].strips][0] == "hbm"
    assert len({strip.tier for strip in plan.tables["a"].strips}) == 2


# ------------------------------------------------------------------------------------- odd shapes


def only(kind: str, **more: int) -> dict[str, object]:
    return {"tables": {"a": {"types": [kind], **more}}}


def test_three_rows_on_eight_ranks() -> None:
    plan = make_plan(plan_recipe({"a": 3}, sharding=only("row_wise")), processors(8, PLENTY))
    parts = plan.tables["a"].rectangles("a")
    assert len(parts) == 3
    assert all(part.rows == 1 for part in parts)
    assert len({part.rank for part in parts}) == 3
    assert (covered(plan, "a") == 1).all()


def test_three_rows_are_not_cut_over_eight_ranks_unasked() -> None:
    assert kinds(make_plan(plan_recipe({"a": 3}, batch=1), processors(8, PLENTY)))["a"] != "row_wise"


def test_more_ranks_than_tables() -> None:
    plan = make_plan(plan_recipe({"a": 5, "b": 4}, batch=1), processors(12, PLENTY))
    assert plan.tables["a"].strips[0].first_rank != plan.tables["b"].strips[0].first_rank


@pytest.mark.parametrize("kind", ["table_wise", "row_wise", "column_wise", "data_parallel"])
def test_a_world_of_one(kind: str) -> None:
    plan = make_plan(plan_recipe({"a": 10}, sharding=only(kind)), processors(1, PLENTY))
    assert kinds(plan) == {"a": kind}
    assert kind == "data_parallel" or (covered(plan, "a") == 1).all()


def test_nothing_is_replicated_or_cut_in_a_world_of_one_unasked() -> None:
    plan = make_plan(plan_recipe({"a": 10, "b": 100_000}, batch=4096), processors(1, PLENTY))
    assert kinds(plan) == {"a": "table_wise", "b": "table_wise"}


@pytest.mark.parametrize(
    ("dim", "world", "slices", "widths"),
    [
        (16, 4, 4, [4, 4, 4, 4]),
        (20, 2, 2, [8, 12]),
        (64, 2, 5, [12, 12, 12, 12, 16]),  # more slices than ranks
        (2048, 3, 3, [680, 684, 684]),
    ],
)
def test_column_slices(dim: int, world: int, slices: int, widths: list[int]) -> None:
    constraint = only("column_wise", slices=slices)
    plan = make_plan(plan_recipe({"a": 7}, dim=dim, sharding=constraint), processors(world, PLENTY))
    strips = plan.tables["a"].strips
    assert sorted(strip.col_end - strip.col_start for strip in strips) == widths
    assert all(strip.num_ranks == 1 for strip in strips)
    assert len({strip.first_rank for strip in strips}) == min(world, len(strips))
    assert (covered(plan, "a") == 1).all()
    assert plan.notes == ("row-wise AdaGrad keeps a sum of its own for each column slice of a",)


@pytest.mark.parametrize("sparse", ["rowwise_adagrad", "sgd"])
@pytest.mark.parametrize("kind", ["zionex", "cpu"])
def test_shapes_that_fit_badly(kind: str, sparse: str) -> None:
    """12 ranks on nodes of 8; dims 4 and 2,048; 3 rows; a table larger than a node."""
    tables = {
        "narrow": {"rows": 1_000_000, "dim": 4},
        "wide": {"rows": 10_000, "dim": 2048},
        "short": {"rows": 3, "dim": 64},
        "giant": {"rows": 700_000_000, "dim": 128},
    }
    recipe = plan_recipe(tables, pooling={"wide": 20.0, "giant": 3.0}, batch=4096, sparse=sparse)
    ranks = replace(KINDS[kind], world=12, ranks_per_node=8, hbm_bytes=40 * GB, ddr_bytes=0)
    plan = make_plan(recipe, ranks)
    assert plan_problems(plan, recipe, ranks) == []
    assert plan.tables["giant"].kind in ("row_wise", "column_wise")
    for strip in (strip for table in plan.tables.values() for strip in table.strips if strip.num_ranks < 12):
        assert strip.first_rank // 8 == (strip.first_rank + strip.num_ranks - 1) // 8  # inside a node
    assert plan.ranks_per_node == 8


def test_no_tables_to_place() -> None:
    """All are replicas: nothing is exchanged but gradients."""
    constraints = {name: {"types": ["data_parallel"]} for name in "ab"}
    plan = make_plan(plan_recipe({"a": 10, "b": 20}, sharding={"tables": constraints}), processors(4, PLENTY))
    assert set(kinds(plan).values()) == {"data_parallel"}


@pytest.mark.parametrize("world", [1, 12])
def test_no_tables_at_all(world: int) -> None:
    recipe = plan_recipe({"a": 10}).model_copy(update={"tables": {}, "features": {}})
    plan = make_plan(recipe, replace(KINDS["zionex"], world=world))
    assert plan.tables == {}
    assert predict(plan, recipe, replace(KINDS["zionex"], world=world)).step_s > 0
