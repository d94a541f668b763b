"""Thresholds in a run: a resume goes on with what was held back, and any plan trains as one process does."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from dlrmx.checkpoint.read import open_checkpoint
from dlrmx.data.batches import Bags, Batch, Split
from dlrmx.data.prepare import prepare
from dlrmx.model.build import build_model
from dlrmx.model.initial import fill_initial
from dlrmx.parallel.wire import Wire
from dlrmx.recipe.schema import Recipe
from dlrmx.train import persist
from dlrmx.train.build import build_parts
from ranks import run_ranks
from sharding_cases import RANKS_PER_NODE, make_plan
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
        expected = before[f"threshold/dense/{name}/residual"].double().sum(0)
        found = torch.stack([rank[name].view(-1) for rank in ranks]).double().sum(0)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


# ------------------------------------------------------------------------------- vectors and their gradients

STEPS, EVERY = 5, 2
FORWARD, BACKWARD = 0.6, 0.5


def sparse_vectors(chunks: int = 1) -> Recipe:
    """Both directions thresholded, rows in stored order, plain SGD, so that one process can follow."""
    raw = make_recipe(STEPS, sparse="sgd", dense="sgd").model_dump(exclude_unset=True)
    raw["data"]["order"] = "as_stored"
    raw["optimizer"]["schedule"] = {"kind": "constant"}
    thresholds = {"forward": {"sparsity": FORWARD, "every": EVERY}, "backward": {"sparsity": BACKWARD, "every": EVERY}}
    return Recipe.model_validate({**raw, "exchange": {"threshold": thresholds, "chunks": chunks}})


@dataclass
class OneProcess:
    """DCT's algorithm 2 over all rows of a batch, in plain torch."""

    recipe: Recipe
    tables: dict[str, torch.Tensor]
    model: torch.nn.Module
    tau: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)

    def step(self, batch: Batch, number: int) -> None:
        features, scale = self.recipe.features, 1 / self.recipe.train.batch
        looked = {name: self._look_up(name, bag) for name, bag in batch.bags.items()}
        sums = {name: rows.sum_into() for name, rows in looked.items()}
        touched = {name: rows.lengths > 0 for name, rows in looked.items()}
        if number % EVERY == 0:
            self._set("forward", FORWARD, {name: sums[name][touched[name]].reshape(-1) for name in sums})
        masks = {name: self._over("forward", name, sums[name]) & touched[name].unsqueeze(1) for name in sums}
        leaves = {name: torch.where(masks[name], sums[name], 0).requires_grad_() for name in sums}
        divisors = {name: rows.lengths.clamp(min=1).unsqueeze(1) for name, rows in looked.items()}
        vectors = [leaves[n] / divisors[n] if f.pooling == "mean" else leaves[n] for n, f in features.items()]
        self.model.zero_grad()
        logits = self.model(torch.from_numpy(np.array(batch.dense)), vectors)
        binary_cross_entropy_with_logits(logits, torch.from_numpy(np.array(batch.labels)), reduction="sum").backward()
        grads = {name: _grad(leaf) for name, leaf in leaves.items()}
        if number % EVERY == 0:
            self._set("backward", BACKWARD, {name: grads[name][masks[name]] for name in grads})
        for name, rows in looked.items():
            kept = torch.where(masks[name] & self._over("backward", name, grads[name]), grads[name], 0)
            rate = self.recipe.optimizer.sparse.lr * scale
            self.tables[features[name].table].index_add_(0, rows.ids, kept[rows.bag] * rows.weights, alpha=-rate)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.sub_(_grad(parameter), alpha=self.recipe.optimizer.dense.lr * scale)

    def _look_up(self, name: str, bag: Bags) -> "Looked":
        ids, lengths = torch.from_numpy(np.array(bag.ids)), torch.from_numpy(np.array(bag.lengths)).long()
        weights = torch.ones(len(ids)) if bag.weights is None else torch.from_numpy(np.array(bag.weights))
        of = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        return Looked(ids, lengths, of, weights.unsqueeze(1), self.tables[self.recipe.features[name].table])

    def _set(self, way: str, sparsity: float, entries: dict[str, torch.Tensor]) -> None:
        for table in self.tables:
            every = torch.cat([entries[n] for n, feature in self.recipe.features.items() if feature.table == table])
            ordered = every.abs().sort(descending=True).values
            self.tau[way, table] = ordered[max(1, round((1 - sparsity) * len(ordered))) - 1]

    def _over(self, way: str, name: str, values: torch.Tensor) -> torch.Tensor:
        return values.abs() >= self.tau[way, self.recipe.features[name].table]


@dataclass(frozen=True)
class Looked:
    """A feature's ids of one batch, and the table that they are looked up in."""

    ids: torch.Tensor
    lengths: torch.Tensor
    bag: torch.Tensor  # of each id
    weights: torch.Tensor  # (n, 1)
    table: torch.Tensor

    def sum_into(self) -> torch.Tensor:
        zeros = torch.zeros(len(self.lengths), self.table.shape[1])
        return zeros.index_add_(0, self.bag, self.table[self.ids] * self.weights)


def one_process(data: Path) -> dict[str, torch.Tensor]:
    """The weights at the end of training in one process."""
    recipe, split = sparse_vectors(), Split(data, "train")
    tables = {name: torch.empty(table.rows, table.dim) for name, table in recipe.tables.items()}
    for name, table in tables.items():
        fill_initial(table, seed=recipe.seed, table=name, rows=len(table), row_start=0, col_start=0)
    dims = [recipe.tables[feature.table].dim for feature in recipe.features.values()]
    one = OneProcess(recipe, tables, build_model(recipe.model, dense_dim=2, dims=dims, seed=recipe.seed))
    for step in range(STEPS):
        one.step(split.take(np.arange(step * recipe.train.batch, (step + 1) * recipe.train.batch)), step)
    weights = {f"table/{name}/weight": table for name, table in tables.items()}
    return weights | {f"dense/{name}": value.detach() for name, value in one.model.named_parameters()}


def _grad(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad


def trained(root: Path, data: Path, cases: tuple[tuple[str, int], ...]) -> list[Path]:
    wire = Wire(RANKS_PER_NODE)
    return [run_session(wire, root, data, sparse_vectors(chunks), kind=kind) for kind, chunks in cases]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_thresholded_vectors_train_as_one_process_does(tmp_path: Path, world: int) -> None:
    data = prepare(sparse_vectors(), tmp_path / "data")
    expected = one_process(data)
    # Column slices hold parts of the same vectors; partial sums of rows that are cut are other numbers, but whole ones
    # where all ranks with rows are of one node, which adds them up.
    cases: tuple[tuple[str, int], ...] = (("table_wise", 1), ("column_wise", 1), ("table_wise", 3))
    if world == 4:
        cases += (("table_row_wise_by_node", 1), ("table_row_wise_by_node", 2))
    for checkpoint in run_ranks(world, trained, tmp_path, data, cases)[0]:
        found = tensors_of(checkpoint)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
