"""The parts of benchmarks/quality.py: what it replaces does what its name says, and a stopped run is gone on with."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from benchmarks import quality
from benchmarks.quality import (
    METHODS,
    Case,
    CountingWire,
    cases,
    mean_features,
    missing,
    random_vectors,
    replaced,
    train_all,
)
from dlrmx.data.batches import Split
from dlrmx.data.prepare import prepare
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.sparse_vectors import SparseWay
from dlrmx.plan.planner import make_plan
from dlrmx.plan.topology import topology_of
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.profiles import LocalProfile
from dlrmx.recipe.schema import Threshold
from dlrmx.train.build import build_parts
from dlrmx.train.step import Parts, Slice, train_step
from ranks import run_ranks

TASK, BATCH = "small", 512
RECIPE = """
dlrmx: 1
data: {kind: synthetic, rows: 4_000}
dense: {x: {}}
features: {a: {}, b: {}}
tables: {a: {rows: 50, dim: 8}, b: {rows: 20, dim: 8}}
model: {kind: dlrm, bottom: [64, 8], top: [64, 1]}
optimizer: {dense: {kind: adagrad, lr: 0.02}, sparse: {kind: rowwise_adagrad, lr: 0.05}}
train: {batch: 512, stop: {epochs: 1}}
"""
SPARSE = Case(TASK, 0, dense=0.9, forward=0.9, every=100)
ALL = Case(TASK, 0, dense=0.9, forward=0.75, backward=0.5, every=1)


@dataclass(frozen=True)
class Seen:
    """What one rank saw of three steps under a method. residual, tau: of the last step."""

    changed: dict[str, bool]  # the dense part; the tables
    logits: torch.Tensor
    residual: torch.Tensor
    tau: torch.Tensor


def everything(folder: Path, data: Path) -> dict[str, Seen]:
    """Each method on this rank, then two cases to the end. Collective."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(quality, "RECIPES", folder)
        wire = CountingWire()
        seen = {method: three_steps(wire, method, data) for method in METHODS}
        train_all([Case(TASK, 0), SPARSE], data, folder / "results", 600)
    return seen


def three_steps(wire: CountingWire, method: str, data: Path) -> Seen:
    recipe = ALL.recipe
    plan = make_plan(recipe, topology_of(LocalProfile(workers_per_node=wire.world)))
    parts = build_parts(recipe, plan, wire=wire, dense_dim=1, device=torch.device("cpu"))
    parts.embeddings.initialise(0)
    assert parts.dense.sparse is not None
    torch.manual_seed(wire.rank)
    split, begun, half = Split(data, "train"), weights(parts), BATCH // wire.world
    with replaced(*METHODS[method]):
        for step in range(3):
            first = step * BATCH + wire.rank * half
            done = train_step(parts, Slice(split.between(first, first + half), BATCH, ""), step=step, rate=1.0)
    changed = {kind: not torch.equal(tensor, weights(parts)[kind]) for kind, tensor in begun.items()}
    sparse = parts.dense.sparse
    return Seen(changed, done.logits.detach(), sparse.residual.clone(), sparse.tau.clone())


def weights(parts: Parts) -> dict[str, torch.Tensor]:
    return {
        "dense": torch.cat([value.detach().flatten() for _, value in parts.dense.parameters()]),
        "tables": torch.cat([weight.detach().flatten() for _, weight, _ in parts.embeddings.held()]),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quality")
    (folder / f"{TASK}.yaml").write_text(RECIPE)
    return folder


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Seen]]:
    data = prepare(load_recipe(folder / f"{TASK}.yaml").recipe, folder / "data")
    return run_ranks(2, everything, folder, data)


def test_the_controls_leave_still_what_they_say(ranks: list[dict[str, Seen]]) -> None:
    for rank in ranks:
        assert {method: seen.changed for method, seen in rank.items()} == {
            **{method: {"dense": True, "tables": True} for method in METHODS},
            "frozen": {"dense": False, "tables": True},
            "dropped": {"dense": True, "tables": False},
        }


def test_nothing_is_held_over_without_error_feedback(ranks: list[dict[str, Seen]]) -> None:
    """What is held back is then this step's alone: none of it is over the threshold, and the tau is lower."""
    for rank in ranks:
        assert float(rank["forgetful"].tau.max()) < float(rank["thresholds"].tau.max())


def test_random_k_sends_small_entries_too(ranks: list[dict[str, Seen]]) -> None:
    for rank in ranks:
        largest, chosen = rank["thresholds"], rank["random-k"]
        bound = float(largest.tau.max())
        assert float(largest.residual.abs().max()) < bound  # all that is over its threshold is gone
        assert float(chosen.residual.abs().max()) > bound
    assert not torch.equal(ranks[0]["random-k"].logits, ranks[0]["thresholds"].logits)


def test_random_k_of_vectors_sends_as_many_as_are_wanted() -> None:
    way = SimpleNamespace(_threshold=Threshold(sparsity=0.75))
    kept = random_vectors(cast(SparseWay, way), torch.ones(500, 24), torch.zeros(500, 1))
    assert abs(float(kept.float().mean()) - 0.25) < 0.02


def test_vectors_replaced_by_their_mean_say_nothing_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "_features", lambda *_: [torch.tensor([[0.0, 1.0], [2.0, 5.0]])])
    (vectors,) = mean_features(cast(Embeddings, None))
    assert vectors.tolist() == [[1.0, 3.0], [1.0, 3.0]]


def test_a_run_is_gone_on_with_where_it_stopped(ranks: list[dict[str, Seen]], folder: Path) -> None:
    plain, thresholded = (json.loads(line) for line in (folder / "results").read_text().splitlines())
    assert plain["steps"] == thresholded["steps"] == 8
    assert 0 < plain["test"]["ne"] < 1.2
    # 1,481 parameters; of vectors a tenth, beside what finding thresholds once in eight steps sends.
    assert plain["bytes"]["dense"] == 4 * 1_481
    assert thresholded["bytes"]["vectors"] < plain["bytes"]["vectors"]
    left = Case(TASK, 0, "frozen")
    done = [Case(TASK, 0), SPARSE]
    assert missing([*done, left], folder / "results") == [left]


def test_each_case_is_asked_for_once() -> None:
    for task in quality.EVERY:
        wanted = cases(task, 0)
        assert len(set(wanted)) == len(wanted)
