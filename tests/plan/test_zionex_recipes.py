"""The shapes of Neo's models: what their recipes' headers say is what they hold, and model F fits 16 nodes."""

import statistics
from pathlib import Path

import pytest

from dlrmx.errors import InputError
from dlrmx.plan.cost import predict
from dlrmx.plan.memory import dense_layers, table_bytes
from dlrmx.plan.planner import make_plan
from dlrmx.plan.topology import Topology, topology_of
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.schema import Recipe, Synthetic

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def load(model: str, *settings: str) -> tuple[Recipe, Topology]:
    loaded = load_recipe(RECIPES / f"zionex_model_{model}.yaml", settings, nodes=16)
    return loaded.recipe, topology_of(loaded.profile)


@pytest.mark.parametrize(
    ("model", "tables", "parameters", "dims", "pooling", "mflop"),
    [
        ("a", 2_000, 793e9, (4, 93, 384), 15, 638),
        ("f", 20, 12e12, (256, 256, 256), 20, 5),
        ("i", 200, 332e9, (92, 92, 92), 70, 60),
    ],
)
def test_a_recipe_holds_what_its_header_says(
    model: str, tables: int, parameters: float, dims: tuple[int, int, int], pooling: float, mflop: float
) -> None:
    recipe, topology = load(model)
    widths = [table.dim for table in recipe.tables.values()]
    assert topology.world == 128
    assert len(recipe.tables) == tables
    assert sum(table.rows * table.dim for table in recipe.tables.values()) == pytest.approx(parameters, rel=1e-6)
    assert (min(widths), max(widths)) == (dims[0], dims[2])
    assert statistics.mean(widths) == pytest.approx(dims[1])
    assert isinstance(recipe.data, Synthetic)
    assert statistics.mean(pool.mean for pool in recipe.data.pooling.values()) == pytest.approx(pooling, rel=1e-4)
    assert sum(2 * inputs * outputs for inputs, outputs, _ in dense_layers(recipe)) / 1e6 == pytest.approx(mflop, 0.01)


def test_model_f_takes_96_48_24_terabytes_and_only_the_last_fits() -> None:
    fp32, adagrad = "defaults.table.dtype=fp32", "optimizer.sparse.kind=adagrad"
    sizes = []
    for settings in ((fp32, adagrad), (fp32,), ()):
        recipe, topology = load("f", *settings)
        sizes.append(sum(table_bytes(table, recipe.optimizer.sparse.kind) for table in recipe.tables.values()) / 1e12)
        if sizes[-1] > 25:
            with pytest.raises(InputError, match="memory: table"):
                make_plan(recipe, topology)
    assert sizes == pytest.approx([96, 48.2, 24.2], abs=0.05)
    memory = predict(make_plan(recipe, topology), recipe, topology).memory
    assert max(rank.total_bytes for rank in memory) <= topology.hbm_bytes * 0.85
    assert max(rank.host_bytes for rank in memory) <= topology.ddr_bytes * 0.85
    held = sum(rank.weights_bytes + rank.state_bytes + rank.host_bytes for rank in memory)
    assert held >= 12e12 * 2 + 12e12 / 256 * 4  # each element in fp16, and one fp32 sum per row of 256
