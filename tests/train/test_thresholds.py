"""Thresholded gradients through a run's life: a resume goes on with what was held back, on any number of ranks."""

from pathlib import Path

import pytest
import torch

from dlrmx.checkpoint.read import open_checkpoint
from dlrmx.data.prepare import prepare
from dlrmx.parallel.wire import Wire
from dlrmx.recipe.schema import Recipe
from dlrmx.train import persist
from dlrmx.train.build import build_parts
from ranks import run_ranks
from sharding_cases import make_plan
from training import differing, make_recipe, run_session, tensors_of


def thresholded(steps: int) -> Recipe:
    raw = make_recipe(steps, sparse="sgd", dense="sgd").model_dump(exclude_unset=True)
    # The matrices of the cross layers and of the bottom have more than 256 entries, so they are thresholded.
    return Recipe.model_validate({**raw, "exchange": {"threshold": {"dense": {"sparsity": 0.9, "every": 4}}}})


def three_runs(root: Path, data: Path) -> tuple[Path, Path, Path]:
    wire = Wire()
    middle = run_session(wire, root, data, thresholded(10))
    resumed = run_session(wire, root, data, thresholded(20), checkpoint=middle)
    return middle, resumed, run_session(wire, root, data, thresholded(20))


def residuals_elsewhere(checkpoint: Path) -> dict[str, torch.Tensor]:
    """What this rank holds back once it has loaded the checkpoint of another number of ranks."""
    wire, recipe = Wire(), thresholded(20)
    parts = build_parts(recipe, make_plan("mix", wire.world), wire=wire, dense_dim=2, device=torch.device("cpu"))
    with open_checkpoint(checkpoint) as stored:
        persist.restore(parts, recipe, stored)
    return {name: residual.clone() for name, residual in parts.dense.residuals()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    data = prepare(thresholded(20), tmp_path_factory.mktemp("data"))
    found: tuple[Path, Path, Path] = run_ranks(2, three_runs, tmp_path_factory.mktemp("runs"), data)[0]
    return found


def test_a_resume_equals_the_unbroken_run_in_every_bit(runs: tuple[Path, Path, Path]) -> None:
    _, resumed, unbroken = runs
    assert differing(resumed, unbroken) == []


def test_each_rank_holds_something_back(runs: tuple[Path, Path, Path]) -> None:
    held = {name: tensor for name, tensor in tensors_of(runs[0]).items() if name.endswith("/residual")}
    assert max(float(tensor[0].abs().max()) for tensor in held.values()) > 0
    assert any(not torch.equal(tensor[0], tensor[1]) for tensor in held.values())


def test_on_three_ranks_the_sum_of_what_is_held_back_is_the_same(runs: tuple[Path, Path, Path]) -> None:
    before = tensors_of(runs[0])
    ranks = run_ranks(3, residuals_elsewhere, runs[0])
    for name in ranks[0]:
        expected = before[f"threshold/{name}/residual"].double().sum(0)
        found = torch.stack([rank[name].view(-1) for rank in ranks]).double().sum(0)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
