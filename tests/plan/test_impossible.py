"""What the error says when no plan fits: table, bytes, memory or constraint; and its ways out must work."""

import re

import pytest

from dlrmx.errors import InputError
from dlrmx.plan.options import Ask
from dlrmx.plan.planner import make_plan
from dlrmx.plan.shards import Plan
from dlrmx.recipe.schema import Recipe
from plan_recipes import plan_recipe, processors

MIB = 1 << 20
LARGE = {"large": 1_000_000, "small": 1000}  # 61.04 MiB and 62.5 KiB of weights at dim 16


def refused(recipe: Recipe, *, world: int, memory_bytes: int) -> InputError:
    with pytest.raises(InputError) as caught:
        make_plan(recipe, processors(world, memory_bytes))
    assert caught.value.exit_code == 2
    return caught.value


def test_memory_is_to_blame() -> None:
    """One rank would need 61 MiB of weights and 3.8 of sums."""
    error = refused(plan_recipe(LARGE), world=1, memory_bytes=40 * MIB)
    (problem,) = error.problems
    assert problem.key == ""
    assert problem.what.startswith("memory: table 'large' (table_wise, 1,000,000 rows x 16) needs 64.9 MiB on a rank")
    assert "of 40 MiB on each of 1 ranks" in problem.what


@pytest.mark.parametrize(
    "recipe",
    [
        plan_recipe({"a": 10}, batch=2**62),
        plan_recipe({"a": {"rows": 2**40 - 1, "dim": 2**63 - 8}}),
        plan_recipe({"a": 10}, model={"kind": "dcnv2", "bottom": [2**62, 2**62], "top": [8, 1]}),
    ],
    ids=["batch", "table", "model"],
)
def test_numbers_beyond_any_memory_are_refused_as_others(recipe: Recipe) -> None:
    assert "Possible solutions" in str(refused(recipe, world=2, memory_bytes=40 * MIB))


def test_the_ways_out_of_memory_work() -> None:
    recipe = plan_recipe(LARGE, sparse="adagrad")
    text = str(refused(recipe, world=2, memory_bytes=40 * MIB))
    assert "- 4 ranks instead of 2\n" in text
    assert isinstance(make_plan(recipe, processors(4, 40 * MIB)), Plan)
    found = re.search(r"- ([\d.]+) MiB per rank instead of 40 MiB", text)
    assert found
    assert float(found[1]) < 66  # the most even plan needs 61 MiB and buffers
    assert isinstance(make_plan(recipe, processors(2, int(float(found[1]) * MIB))), Plan)
    assert "- optimizer.sparse.kind rowwise_adagrad instead of adagrad" in text
    assert isinstance(make_plan(plan_recipe(LARGE), processors(2, 40 * MIB)), Plan)
    # The rest is said once each, and only where it works: fp16 leaves 4 + 2 bytes an element, 46 MiB a rank.
    assert "fp16" not in text


def test_fp16_is_named_where_it_suffices() -> None:
    text = str(refused(plan_recipe(LARGE), world=1, memory_bytes=40 * MIB))
    assert "- dtype fp16 for table 'large'" in text
    assert "dtype fp16 for all tables" not in text  # the smaller change is enough
    halved = plan_recipe({"large": {"rows": 1_000_000, "dtype": "fp16"}, "small": 1000})
    assert isinstance(make_plan(halved, processors(1, 40 * MIB)), Plan)


def test_a_smaller_batch_is_named_where_it_suffices() -> None:
    recipe = plan_recipe({"a": 100}, batch=100_000)
    text = str(refused(recipe, world=1, memory_bytes=160 * MIB))
    assert "- train.batch 50000 instead of 100000" in text
    assert isinstance(make_plan(plan_recipe({"a": 100}, batch=50_000), processors(1, 160 * MIB)), Plan)


def test_the_dense_part_alone_is_too_large() -> None:
    recipe = plan_recipe({"a": 4})
    needed = Ask(recipe, processors(2, 0)).fixed_bytes
    (problem,) = refused(recipe, world=2, memory_bytes=needed).problems
    assert problem.what.startswith("memory: the model without its tables needs")
    assert "table 'a'" not in problem.what


def test_the_reserve_is_kept_free() -> None:
    kept = plan_recipe(LARGE, sharding={"reserve": 0.5})
    assert isinstance(make_plan(plan_recipe(LARGE), processors(1, 80 * MIB)), Plan)
    assert "40 MiB are kept free (sharding.reserve)" in str(refused(kept, world=1, memory_bytes=80 * MIB))


def test_a_constraint_is_to_blame_and_named() -> None:
    constraints = {"large": {"types": ["table_wise"]}, "small": {"types": ["row_wise"]}}
    recipe = plan_recipe(LARGE, sharding={"tables": constraints})
    (problem,) = refused(recipe, world=2, memory_bytes=40 * MIB).problems
    assert problem.key == "sharding.tables.large"
    assert problem.what.startswith("constraint: types [table_wise] of table 'large' forbids every plan that fits")
    assert "needs 64.9 MiB on a rank" in problem.what
    assert "- leave the constraint out: 'large' would be row_wise" in problem.hint
    relaxed = plan_recipe(LARGE, sharding={"tables": {"small": {"types": ["row_wise"]}}})
    assert isinstance(make_plan(relaxed, processors(2, 40 * MIB)), Plan)


def test_constraints_that_only_together_are_to_blame() -> None:
    """Five tables of 65 MiB pinned whole on three ranks of 115: any one freed leaves two together."""
    tables = dict.fromkeys(("a", "b", "c", "d", "e"), 1000000)
    pinned = {name: {"types": ["table_wise"]} for name in ("a", "b", "c", "d", "e")}
    recipe = plan_recipe(tables, sharding={"tables": pinned})
    (problem,) = refused(recipe, world=3, memory_bytes=115 * MIB).problems
    assert problem.key == "sharding.tables"
    assert all(f"'{name}' would be row_wise" in problem.hint for name in tables)


def test_a_constraint_is_not_blamed_where_memory_lacks_anyway() -> None:
    recipe = plan_recipe(LARGE, sharding={"tables": {"large": {"types": ["table_wise"]}}})
    (problem,) = refused(recipe, world=2, memory_bytes=20 * MIB).problems
    assert problem.what.startswith("memory:")
    assert "leave the constraint out" not in problem.hint


def test_replicas_that_do_not_fit() -> None:
    """64 MB of weights, 4 of sums, the gradients of both ranks, and half as much again as the rows while they move."""
    recipe = plan_recipe(LARGE, sharding={"tables": {"large": {"types": ["data_parallel"]}}})
    (problem,) = refused(recipe, world=2, memory_bytes=100 * MIB).problems
    assert "table 'large' (data_parallel, 1,000,000 rows x 16) needs 278 MiB on a rank" in problem.what
    assert problem.key == "sharding.tables.large"
