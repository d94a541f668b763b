"""The shipped MovieLens recipe: as good as plain torch on real data, and step by step the same."""

import statistics
from pathlib import Path

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.movielens import FILE, RECIPE, SEEDS, Pair, measure, train_plain
from dlrmx.data.batches import Split
from dlrmx.data.manifest import read_manifest
from dlrmx.data.prepare import prepare
from dlrmx.parallel.wire import Wire
from dlrmx.plan.planner import make_plan
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.schema import Recipe
from dlrmx.train.build import build_parts
from dlrmx.train.evaluate import evaluate
from dlrmx.train.metrics import Metrics
from dlrmx.train.schedule import rate_factor
from dlrmx.train.step import train_step
from dlrmx.train.stream import Position, Stream
from plan_recipes import processors
from ranks import run_ranks

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"no {FILE.name} in datasets/: run `make data`")


# The planner would leave all but the smallest whole; cut by rows, a step adds up parts of these as well.
CUT = ["sharding.tables={user_id: {types: [row_wise]}, item_id: {types: [row_wise]}}"]


def train_sharded(recipe: Recipe, data: Path) -> tuple[list[float], Metrics | None]:
    """The whole recipe under the planner's plan: this rank's sum of losses in each step, and the test's metrics."""
    wire, position, losses = Wire(), Position(), []
    plan = make_plan(recipe, processors(wire.world, 2**30), read_manifest(data))
    assert {table.kind for table in plan.tables.values()} == {"row_wise", "table_wise", "data_parallel"}
    parts = build_parts(recipe, plan, wire=wire, dense_dim=len(recipe.dense), device=torch.device("cpu"))
    parts.embeddings.initialise(recipe.seed)
    stream = Stream(Split(data, "train"), recipe, order_seed=recipe.seed, rank=wire.rank, world=wire.world)
    while position.step < stream.total_steps:
        rate = rate_factor(recipe.optimizer.schedule, position.step)
        done = train_step(parts, stream.slice_at(position), step=position.step, rate=rate)
        losses.append(binary_cross_entropy_with_logits(done.logits, done.labels, reduction="sum").item())
        position = stream.after(position)
    return losses, evaluate(parts, Split(data, "test"), batch=recipe.train.batch, step=position.step)


def test_every_loss_of_the_run_is_that_of_plain_torch(tmp_path: Path) -> None:
    recipe = load_recipe(RECIPE, CUT).recipe
    data = prepare(recipe, tmp_path)
    (sums, metrics), (other_sums, _) = run_ranks(2, train_sharded, recipe, data)
    plain = train_plain(recipe, data)

    batch, rows, epochs = recipe.train.batch, Split(data, "train").rows, 3
    sizes = [min(batch, rows - first) for first in range(0, rows, batch)] * epochs
    got = [(mine + other) / size for mine, other, size in zip(sums, other_sums, sizes, strict=True)]
    assert got == pytest.approx(plain.losses, rel=1e-5)
    assert metrics is not None
    assert (metrics.auc, metrics.ne) == pytest.approx((plain.auc, plain.ne), rel=1e-5)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    return measure(SEEDS, tmp_path_factory.mktemp("movielens"))


@pytest.mark.slow
def test_five_seeds_on_two_workers_are_as_good_as_plain_torch(pairs: list[Pair]) -> None:
    """No mean worse by more than plain torch's own standard deviation. The second pair of bounds is what a
    matrix of settings reached on validation: a recipe that no longer learns is equal to plain torch, too."""
    ours, plain = [pair.dlrmx for pair in pairs], [pair.plain for pair in pairs]
    auc, ne = [result.auc for result in plain], [result.ne for result in plain]
    assert statistics.mean(result.auc for result in ours) >= statistics.mean(auc) - statistics.stdev(auc)
    assert statistics.mean(result.ne for result in ours) <= statistics.mean(ne) + statistics.stdev(ne)
    assert statistics.mean(result.auc for result in ours) > 0.785
    assert statistics.mean(result.ne for result in ours) < 0.81


@pytest.mark.slow
def test_five_seeds_lose_what_plain_torch_loses_in_each_step(pairs: list[Pair]) -> None:
    assert max(pair.distance for pair in pairs) < 1e-5


@pytest.mark.slow
def test_a_seed_takes_less_than_two_minutes(pairs: list[Pair]) -> None:
    assert max(pair.dlrmx.seconds for pair in pairs) < 120
