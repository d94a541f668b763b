"""Random tables and ranks for the planner, and how near a plan comes to the bound of its load."""

from dataclasses import replace

import numpy as np

from dlrmx.plan.choose import cheapest
from dlrmx.plan.cost import predict
from dlrmx.plan.options import Ask, Options, enumerate_options
from dlrmx.plan.shards import Plan
from dlrmx.plan.topology import KINDS, Topology
from dlrmx.recipe.schema import Recipe
from plan_recipes import plan_recipe

WORLDS = (8, 16, 32, 64, 128)


def instance(
    seed: int,
    *,
    tables: int | None = None,
    world: int | None = None,
    filled: float | None = None,
    sparse: str = "rowwise_adagrad",
) -> tuple[Recipe, Topology]:
    """Tables of log-uniform rows, 1e3 to 2e7, dims 32 to 256 and pooling 1 to 100, half of the instances with skew.

    On 8 to 128 GPUs of 80 GB, 4 to 10 tables each where no number is given. filled: their memory is so small that the
    cheapest forms of all tables take that part of it.
    """
    random = np.random.default_rng(seed)
    world = world or int(random.choice(WORLDS))
    tables = tables or int(random.integers(4 * world, 10 * world + 1))
    rows, dims = 10 ** random.uniform(3, np.log10(2e7), tables), 4 * random.integers(8, 65, tables)
    pooling, zipf = random.integers(1, 101, tables), float(random.choice([0.0, 1.05]))
    recipe = plan_recipe(
        {f"t{n}": {"rows": int(rows[n]), "dim": int(dims[n])} for n in range(tables)},
        pooling={f"t{n}": float(pooling[n]) for n in range(tables)},
        batch=512 * world,
        sparse=sparse,
    )
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"zipf": zipf})})
    topology = KINDS["dgx_a100_80"].sized(world=world)
    return recipe, topology if filled is None else _small(recipe, topology, filled)


def _small(recipe: Recipe, topology: Topology, filled: float) -> Topology:
    """Ranks that the cheapest forms of all tables fill to that part; without host memory apart."""
    options = enumerate_options(Ask(recipe, topology))
    taken = options.total_bytes[cheapest(options), np.arange(len(recipe.tables))].sum() / topology.world
    return replace(topology, hbm_bytes=int(taken / filled + options.ask.fixed_bytes), ddr_bytes=0)


def lower_bound_s(options: Options) -> float:
    """The larger of the mean over ranks of all cheapest forms that fit, and the largest part of one on a rank."""
    seconds = np.where(options.fitting(), options.total_s, np.inf)
    form, every = seconds.argmin(axis=0), np.arange(seconds.shape[1])
    mean = seconds[form, every].sum() / options.ask.topology.world
    return float(max(mean, options.largest_s[form, every].max(initial=0.0)))


def bound_and_load(plan: Plan, recipe: Recipe, topology: Topology) -> tuple[float, float]:
    """The bound below which no plan's most loaded rank goes, but for splits, and what it is in this plan: seconds."""
    bound = lower_bound_s(enumerate_options(Ask(recipe, topology)))
    return bound, max(predict(plan, recipe, topology).loads)
