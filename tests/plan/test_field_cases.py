"""What went wrong for users of other planners, and must not here."""

from dataclasses import replace
from typing import Any

import pytest

from dlrmx.errors import InputError
from dlrmx.plan.cost import predict
from dlrmx.plan.options import Ask
from dlrmx.plan.planner import make_plan
from dlrmx.plan.shards import Plan, Strip, TablePlan
from dlrmx.plan.topology import GB, KINDS
from dlrmx.plan.validate import plan_problems
from plan_recipes import plan_recipe, processors

EIGHT = KINDS["dgx_a100_80"]


def constrained(constraint: dict[str, Any], **more: Any) -> Any:
    return plan_recipe({"a": 1_000_000}, dim=64, sharding={"tables": {"a": constraint}}, **more)


def test_rows_are_cut_on_processors_too() -> None:
    """torchrec: "No available sharding types" for row_wise on gloo."""
    plan = make_plan(constrained({"types": ["row_wise"]}), processors(4, GB))
    assert plan.tables["a"].kind == "row_wise"


@pytest.mark.parametrize("tier", ["uvm_caching", "uvm"])
def test_a_tier_can_be_forced_where_device_memory_would_suffice(tier: str) -> None:
    """torchrec: caching is chosen rarely, and nobody can ask for it."""
    plan = make_plan(constrained({"tier": tier, "types": ["table_wise", "row_wise"]}), EIGHT)
    assert {strip.tier for strip in plan.tables["a"].strips} == {tier}
    memory = predict(plan, constrained({"tier": tier}), EIGHT).memory
    assert sum(rank.host_weights_bytes for rank in memory) == 1_000_000 * 64 * 4


def test_a_cache_ratio_can_be_given() -> None:
    plan = make_plan(constrained({"tier": "uvm_caching", "cache_ratio": 0.37}), EIGHT)
    assert {strip.cache_ratio for strip in plan.tables["a"].strips} == {0.37}


def test_a_plan_for_what_ranks_have_not_is_refused() -> None:
    """torchrec: the planner offers what the runtime cannot do, and that fails at start."""
    strips = (Strip(0, 1_000_000, 0, 64, 0, 1, "uvm_caching", 0.2),)
    plan = Plan(2, {"a": TablePlan(1_000_000, 64, "fp32", "table_wise", strips=strips)}, ranks_per_node=2)
    (problem,) = plan_problems(plan, plan_recipe({"a": 1_000_000}, dim=64), processors(2, GB))
    assert problem.what == "lies in uvm_caching: processors have hbm only"
    with pytest.raises(InputError, match="a processor has no other memory than hbm"):
        make_plan(constrained({"tier": "uvm"}), processors(2, GB))


def test_batches_read_ahead_count() -> None:
    """torchrec: prefetched inputs were left out of the estimate, and runs died of it."""
    recipe = plan_recipe({"a": 100}, pooling={"a": 1000.0}, batch=10_000)
    ranks = processors(1, 8 * GB)
    memory = predict(make_plan(recipe, ranks), recipe, ranks).memory[0]
    assert memory.pipeline_bytes >= 2 * 10_000 * 1000 * 8
    with pytest.raises(InputError, match="memory: "):
        make_plan(recipe, replace(ranks, hbm_bytes=memory.total_bytes - memory.pipeline_bytes // 2))


def test_column_slices_may_share_a_rank() -> None:
    """torchrec: more slices than ranks gave ranks twice, without a word. All are in the plan, and all is covered."""
    recipe = constrained({"types": ["column_wise"], "slices": 6}, sparse="sgd")
    plan = make_plan(recipe, processors(4, GB))
    assert plan_problems(plan, recipe, processors(4, GB)) == []
    assert sorted(strip.col_end - strip.col_start for strip in plan.tables["a"].strips) == [8, 8, 12, 12, 12, 12]
    assert {strip.first_rank for strip in plan.tables["a"].strips} == {0, 1, 2, 3}


def test_a_lost_shard_is_found() -> None:
    """torchrec: shards were dropped silently, and missed when a checkpoint was saved."""
    recipe = constrained({"types": ["grid"], "slices": 2}, sparse="sgd")
    plan = make_plan(recipe, EIGHT.sized(world=16))
    table = plan.tables["a"]
    less = replace(plan, tables={"a": replace(table, strips=table.strips[1:])})
    (problem,) = plan_problems(less, recipe, EIGHT.sized(world=16))
    assert "cover 32000000 of 64000000 elements" in problem.what


@pytest.mark.parametrize("host", [False, True])
def test_a_table_that_fits_nowhere_is_named_with_the_memory_that_lacks(host: bool) -> None:
    """torchrec: the error path itself failed, or said that nothing fits and not what."""
    recipe = plan_recipe({"small": 1000, "giant": {"rows": 10_000_000_000, "dim": 256}})
    with pytest.raises(InputError) as caught:
        make_plan(recipe, EIGHT if host else replace(EIGHT, ddr_bytes=0))
    (problem,) = caught.value.problems
    assert problem.what.startswith("memory: table 'giant' (")
    assert ("host memory" in problem.what) == host
    assert "Possible solutions:" in problem.hint


def test_a_constraint_on_memory_is_blamed_by_name() -> None:
    recipe = plan_recipe(
        {"a": {"rows": 100_000_000, "dim": 256}}, sharding={"tables": {"a": {"tier": "hbm", "types": ["table_wise"]}}}
    )
    with pytest.raises(InputError) as caught:
        make_plan(recipe, EIGHT)
    (problem,) = caught.value.problems
    assert problem.key == "sharding.tables.a"
    assert problem.what.startswith("constraint: types [table_wise], tier hbm of table 'a' forbids every plan that fits")
    assert "leave the constraint out: 'a' would be" in problem.hint


def test_every_way_out_was_tried() -> None:
    recipe = plan_recipe({"a": {"rows": 200_000_000, "dim": 256}}, sparse="adagrad")
    with pytest.raises(InputError) as caught:
        make_plan(recipe, replace(EIGHT, hbm_bytes=20 * GB, ddr_bytes=0))
    assert "- 32 ranks (4 nodes) instead of 8" in caught.value.problems[0].hint
    more = replace(EIGHT, hbm_bytes=20 * GB, ddr_bytes=0).sized(world=32)
    assert isinstance(make_plan(recipe, more), Plan)
    assert Ask(recipe, more).usable_bytes == 20 * GB
