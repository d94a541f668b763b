"""The reference against torch's own layers and optimizers, fbgemm's kernels, and arithmetic by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dlrmx.data.batches import Bags, Batch
from dlrmx.recipe.schema import Recipe, SparseOptimizer
from reference import Reference, pool, update_table

ROWS = {"a": 7, "b": 3}
LR, EPS = 0.5, 1e-3
Optimizer = torch.optim.Optimizer


def make_recipe(*, sparse: str = "sgd", dense: str = "sgd", dtype: str = "fp32", pooling: str = "sum") -> Recipe:
    """Two features on table a, one (weighted) on b."""
    raw: dict[str, Any] = {
        "dlrmx": 1,
        "name": "reference",
        "seed": 3,
        "data": {"kind": "synthetic", "rows": 100},
        "dense": {"x": {}, "y": {}},
        "defaults": {"feature": {"pooling": pooling}, "table": {"dim": 4, "dtype": dtype}},
        "features": {"first": {"table": "a"}, "second": {"table": "a"}, "third": {"table": "b", "weights": "w"}},
        "tables": {name: {"rows": rows} for name, rows in ROWS.items()},
        "model": {"kind": "dlrm", "bottom": [5, 4], "top": [6, 1]},
        "optimizer": {
            "dense": {"kind": dense, "lr": 0.1, "eps": EPS},
            "sparse": {"kind": sparse, "lr": LR, "eps": EPS},
        },
        "train": {"batch": 16, "stop": {"steps": 1}},
    }
    return Recipe.model_validate(raw)


def make_batch(seed: int, size: int = 16) -> Batch:
    """Bags of 0 to 4 ids with repeats, weights on the third feature, labels of both kinds."""
    random = np.random.default_rng(seed)

    def bags(rows: int, weighted: bool) -> Bags:
        lengths = random.integers(0, 5, size).astype(np.int32)
        ids = random.integers(0, rows, lengths.sum())
        return Bags(ids, lengths, random.uniform(0.5, 1.5, len(ids)).astype(np.float32) if weighted else None)

    named = {"first": bags(7, False), "second": bags(7, False), "third": bags(3, True)}
    labels = (random.random(size) < 0.4).astype(np.float32)
    return Batch(labels, random.standard_normal((size, 2)).astype(np.float32), named)


class TorchModel:
    """The same model with nn.EmbeddingBag, trained by torch.optim."""

    def __init__(self, reference: Reference, sparse: Callable[[Any], Optimizer], dense: Callable[[Any], Optimizer]):
        self.reference = reference
        self.mean = reference.recipe.features["first"].pooling == "mean"
        self.model = Reference(reference.recipe, 2).model
        self.tables = {
            name: nn.EmbeddingBag.from_pretrained(w.clone(), freeze=False) for name, w in reference.tables.items()
        }
        self.optimizers = [sparse([table.weight for table in self.tables.values()]), dense(self.model.parameters())]

    def step(self, batch: Batch) -> float:
        pooled = []
        for name, feature in self.reference.recipe.features.items():
            bags, table = batch.bags[name], self.tables[feature.table]
            offsets = torch.from_numpy(np.cumsum(bags.lengths) - bags.lengths)
            weights = None if bags.weights is None else torch.from_numpy(bags.weights)
            table.mode = "mean" if self.mean and weights is None else "sum"
            vectors = table(torch.from_numpy(bags.ids), offsets, per_sample_weights=weights)
            if self.mean and weights is not None:  # torch has no weighted mean: ours is over the number of ids
                vectors = vectors / torch.from_numpy(np.maximum(bags.lengths, 1))[:, None]
            pooled.append(vectors)
        logits = self.model(torch.from_numpy(batch.dense), pooled)
        loss: torch.Tensor = nn.BCEWithLogitsLoss()(logits, torch.from_numpy(batch.labels))
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        torch.autograd.backward(loss)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()


SPARSE: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=LR),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=LR, eps=EPS),
}
DENSE: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, eps=EPS),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, eps=EPS, weight_decay=0.0),
}


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize(("sparse", "dense"), [("sgd", "sgd"), ("adagrad", "adagrad"), ("sgd", "adamw")])
def test_equals_torch(sparse: str, dense: str, pooling: str) -> None:
    reference = Reference(make_recipe(sparse=sparse, dense=dense, pooling=pooling), dense_dim=2)
    plain = TorchModel(reference, SPARSE[sparse], DENSE[dense])
    for seed in range(5):
        batch = make_batch(seed)
        assert reference.step(batch) == pytest.approx(plain.step(batch), rel=1e-5)
    for name, table in plain.tables.items():
        torch.testing.assert_close(reference.tables[name], table.weight.detach(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(reference.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad"])
def test_table_optimizers_equal_fbgemm(kind: str) -> None:
    """Three steps with repeated ids in one batch, against the kernels that training uses."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    optimizer = {
        "sgd": EmbOptimType.EXACT_SGD,
        "adagrad": EmbOptimType.EXACT_ADAGRAD,
        "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    }[kind]
    kernel = SplitTableBatchedEmbeddingBagsCodegen(
        embedding_specs=[(7, 4, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=optimizer,
        learning_rate=LR,
        eps=EPS,
        bounds_check_mode=BoundsCheckMode.NONE,
    )
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(7, 4, generator=generator)
    kernel.split_embedding_weights()[0].copy_(weight)
    ids, lengths = np.array([1, 1, 3, 0, 3, 3, 6]), np.array([2, 1, 0, 4], dtype=np.int32)
    state = {"sgd": None, "adagrad": torch.zeros(7, 4), "rowwise_adagrad": torch.zeros(7)}[kind]
    for _ in range(3):
        flowing = torch.randn(4, 4, generator=generator)
        torch.autograd.backward(kernel(torch.from_numpy(ids), torch.tensor([0, 2, 3, 3, 7])), flowing)
        leaf = weight.clone().requires_grad_()
        torch.autograd.backward(pool(leaf, Bags(ids, lengths, None), mean=False), flowing)
        assert leaf.grad is not None
        update_table(weight, leaf.grad, state, SparseOptimizer(kind=kind, lr=LR, eps=EPS), lr=LR)  # type: ignore[arg-type]
    torch.testing.assert_close(weight, kernel.split_embedding_weights()[0])
    if state is not None:
        torch.testing.assert_close(state.flatten(), kernel.split_optimizer_states()[0][0].flatten())


def test_pooling_by_hand() -> None:
    weight = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    bags = Bags(np.array([0, 2, 2, 1]), np.array([3, 0, 1], dtype=np.int32), None)
    assert pool(weight, bags, mean=False).tolist() == [[7.0, 70.0], [0.0, 0.0], [2.0, 20.0]]
    weighted = Bags(bags.ids, bags.lengths, np.array([2.0, 1.0, 0.5, 4.0], dtype=np.float32))
    assert pool(weight, weighted, mean=False).tolist() == [[6.5, 65.0], [0.0, 0.0], [8.0, 80.0]]
    # A weighted mean is over the number of ids, not over the sum of the weights.
    wanted = torch.tensor([[6.5 / 3, 65 / 3], [0.0, 0.0], [8.0, 80.0]])
    torch.testing.assert_close(pool(weight, weighted, mean=True), wanted)


def test_table_optimizers_by_hand() -> None:
    gradient = torch.tensor([[3.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    for kind, wanted_state, wanted in (
        ("adagrad", [[10.0, 2.0], [1.0, 1.0]], [[1 - 3 / 10**0.5, 1 - 1 / 2**0.5], [1.0, 1.0]]),
        ("rowwise_adagrad", [6.0, 1.0], [[1 - 3 / 6**0.5, 1 - 1 / 6**0.5], [1.0, 1.0]]),
    ):
        weight = torch.ones(2, 2, dtype=torch.float64)
        state = torch.ones(2, 2, dtype=torch.float64) if kind == "adagrad" else torch.ones(2, dtype=torch.float64)
        optimizer = SparseOptimizer.model_validate({"kind": kind, "lr": 1.0, "eps": 1e-300})
        update_table(weight, gradient, state, optimizer, lr=1.0)
        assert state.tolist() == wanted_state
        torch.testing.assert_close(weight, torch.tensor(wanted, dtype=torch.float64))


def test_fp16_tables_are_rounded_once_a_step() -> None:
    recipe = make_recipe(dtype="fp16")
    half, full = Reference(recipe, 2), Reference(recipe, 2)
    full.tables = {name: table.float() for name, table in half.tables.items()}
    assert half.tables["a"].dtype == torch.float16
    half.step(make_batch(0))
    full.step(make_batch(0))
    for name in ROWS:
        assert torch.equal(half.tables[name], full.tables[name].to(torch.float16))


def test_fp64_starts_from_the_same_values_and_stays_close() -> None:
    recipe = make_recipe(sparse="rowwise_adagrad", dense="adagrad")
    single, double = Reference(recipe, 2), Reference(recipe, 2, torch.float64)
    assert all(torch.equal(single.tables[name].double(), double.tables[name]) for name in ROWS)
    for seed in range(5):
        assert single.step(make_batch(seed)) == pytest.approx(double.step(make_batch(seed)), rel=1e-5)
    assert double.tables["a"].dtype == double.state["table/a/rowwise_adagrad.sum"].dtype == torch.float64


def test_the_rate_factor_scales_both_rates() -> None:
    """Under SGD half a rate is half a move, in the tables and in the dense part."""
    moves = []
    for factor in (1.0, 0.5, 0.0):
        reference = Reference(make_recipe(), 2, torch.float64)
        before = [
            *reference.tables.values(),
            *(parameter.detach().clone() for parameter in reference.model.parameters()),
        ]
        reference.step(make_batch(0), lr_factor=factor)
        after = [*reference.tables.values(), *(parameter.detach() for parameter in reference.model.parameters())]
        moves.append([new - old for new, old in zip(after, before, strict=True)])
    for whole, half, none in zip(*moves, strict=True):
        torch.testing.assert_close(half, whole / 2)
        assert whole.any()
        assert not none.any()


def test_predict_gives_the_logits_of_the_loss_and_changes_nothing() -> None:
    reference, batch = Reference(make_recipe(), 2), make_batch(0)
    logits = reference.predict(batch)
    assert logits.shape == (16,)
    wanted = nn.BCEWithLogitsLoss()(logits, torch.from_numpy(batch.labels)).item()
    assert reference.step(batch) == pytest.approx(wanted, rel=1e-6)


def test_state_has_its_canonical_names() -> None:
    assert Reference(make_recipe(), 2).state == {}
    adagrad = Reference(make_recipe(sparse="adagrad"), 2).state
    assert {name: tuple(state.shape) for name, state in adagrad.items()} == {
        "table/a/adagrad.sum": (7, 4),
        "table/b/adagrad.sum": (3, 4),
    }
    rowwise = Reference(make_recipe(sparse="rowwise_adagrad"), 2).state
    assert {name: tuple(state.shape) for name, state in rowwise.items()} == {
        "table/a/rowwise_adagrad.sum": (7,),
        "table/b/rowwise_adagrad.sum": (3,),
    }


def test_it_learns() -> None:
    reference, batch = Reference(make_recipe(sparse="rowwise_adagrad", dense="adagrad"), 2), make_batch(0)
    losses = [reference.step(batch) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
