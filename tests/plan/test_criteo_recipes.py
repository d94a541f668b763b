"""The shipped recipes for Criteo's sets: their sizes are those of their sources, and plans exist."""

import re
from dataclasses import replace

import pytest

import dlrmx_recipes
from dlrmx.errors import InputError
from dlrmx.plan.cost import predict
from dlrmx.plan.planner import make_plan
from dlrmx.plan.topology import GB, KINDS
from dlrmx.plan.validate import plan_problems
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.schema import Recipe
from plan_recipes import processors

SIZES = {  # rows of all tables and parameters of one row, as published
    "criteo_kaggle": (33_762_577, 16),
    "mlperf_dcnv2": (204_184_588, 128),
}
# Ranks, and GiB of each.
CLUSTERS = {"criteo_kaggle": (2, 4), "criteo_terabyte": (4, 8), "mlperf_dcnv2": (8, 40)}


def shipped(name: str) -> Recipe:
    return load_recipe(dlrmx_recipes.shipped()[name]).recipe


@pytest.mark.parametrize("name", SIZES)
def test_tables_are_as_published(name: str) -> None:
    recipe = shipped(name)
    rows, dim = SIZES[name]
    # Two reserved rows in a vocabulary, one in a table of remainders.
    reserved = {table: 1 if recipe.features[table].ids == "modulo" else 2 for table in recipe.tables}
    assert sum(table.rows - reserved[key] for key, table in recipe.tables.items()) == rows
    assert {table.dim for table in recipe.tables.values()} == {dim}
    assert list(recipe.features) == list(recipe.tables) == [f"C{n}" for n in range(1, 27)]
    assert list(recipe.dense) == [f"I{n}" for n in range(1, 14)]


def test_mlperf_looks_up_214_ids_a_row() -> None:
    assert sum(feature.expand for feature in shipped("mlperf_dcnv2").features.values()) == 214


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_plan_exists(name: str) -> None:
    recipe = shipped(name)
    world, gib = CLUSTERS[name]
    topology = processors(world, gib << 30)
    plan = make_plan(recipe, topology)
    assert max(rank.total_bytes for rank in predict(plan, recipe, topology).memory) <= gib << 30


@pytest.mark.parametrize(("kind", "world"), [("dgx_a100_80", 8), ("zionex", 32)])
def test_mlperfs_tables_fit_a_node_of_80_gb_and_four_of_zionex(kind: str, world: int) -> None:
    recipe, topology = shipped("mlperf_dcnv2"), KINDS[kind].sized(world=world)
    plan = make_plan(recipe, topology)
    assert plan_problems(plan, recipe, topology) == []
    assert {strip.tier for table in plan.tables.values() for strip in table.strips} == {"hbm"}
    assert max(rank.total_bytes for rank in predict(plan, recipe, topology).memory) <= 0.85 * topology.hbm_bytes


def test_mlperfs_tables_do_not_fit_two_times_24_gb() -> None:
    """104.5 GB of weights and as much state: an error that names a table, and a way out."""
    recipe = shipped("mlperf_dcnv2")
    small = replace(KINDS["dgx_a100_80"], world=2, ranks_per_node=2, hbm_bytes=24 * GB, ddr_bytes=0)
    with pytest.raises(InputError) as caught:
        make_plan(recipe, small)
    (problem,) = caught.value.problems
    assert re.match(r"memory: table 'C\d+' \(\w+, 40,000,001 rows x 128\) needs ", problem.what)
    found = re.search(r"- (\d+) ranks \(\d+ nodes\) instead of 2", problem.hint)
    assert found
    make_plan(recipe, small.sized(world=int(found[1])))
