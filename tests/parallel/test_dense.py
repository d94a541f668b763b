"""The flat dense part: one optimizer over one buffer equals torch's own over many parameters."""

import pytest
import torch
from torch import nn

from dlrmx.parallel.dense import DensePart
from dlrmx.recipe.schema import DenseOptimizer

STEPS = 5


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 1))


def torch_optimizer(kind: str, built: nn.Module) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(built.parameters(), lr=0.1)
    if kind == "adagrad":
        return torch.optim.Adagrad(built.parameters(), lr=0.1, eps=1e-8)
    return torch.optim.AdamW(built.parameters(), lr=0.1, eps=1e-8, weight_decay=0.5)


def settings(kind: str) -> DenseOptimizer:
    decay = {"weight_decay": 0.5} if kind == "adamw" else {}
    return DenseOptimizer.model_validate({"kind": kind, "lr": 0.1, "eps": 1e-8, **decay})


def loss_of(built: nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    output: torch.Tensor = built(torch.randn(16, 5, generator=generator))
    return (output**2).sum()


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "adamw"])
def test_one_flat_parameter_trains_as_many(kind: str) -> None:
    flat_model, plain_model = model(), model()
    dense, optimizer = DensePart(flat_model, settings(kind), extra=0), torch_optimizer(kind, plain_model)
    for step in range(STEPS):
        dense.zero()
        loss_of(flat_model, step).backward()
        dense.step(1.0)
        optimizer.zero_grad()
        loss_of(plain_model, step).backward()
        optimizer.step()
    for flat, plain in zip(flat_model.parameters(), plain_model.parameters(), strict=True):
        torch.testing.assert_close(flat.data, plain.data, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "adamw"])
def test_state_that_is_copied_over_goes_on_as_before(kind: str) -> None:
    models = [model(), model()]
    first, second = (DensePart(built, settings(kind), extra=0) for built in models)
    for step in range(STEPS):
        first.zero()
        loss_of(models[0], step).backward()
        first.step(1.0)
    for source, target in ((first.parameters, second.parameters), (first.optimizer_state, second.optimizer_state)):
        for (name, value), (other, place) in zip(source(), target(), strict=True):
            assert name == other
            place.copy_(value)
    for dense, built in zip((first, second), models, strict=True):
        dense.zero()
        loss_of(built, 99).backward()
        dense.step(0.5)
    for (name, left), (_, right) in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right), name


def test_the_rate_is_scaled() -> None:
    built = model()
    dense = DensePart(built, settings("sgd"), extra=0)
    before = {name: value.clone() for name, value in dense.parameters()}
    dense.zero()
    loss_of(built, 0).backward()
    dense.step(0.25)
    for name, value in dense.parameters():
        expected = before[name] - 0.1 * 0.25 * dict(dense.gradients())[name]
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7)


def test_only_what_matters_is_named_as_state() -> None:
    names = {kind: [n for n, _ in DensePart(model(), settings(kind), extra=0).optimizer_state()] for kind in KINDS}
    assert names["sgd"] == []
    assert names["adagrad"] == ["0.weight/sum", "0.bias/sum", "2.weight/sum", "2.bias/sum"]
    assert "step" in names["adamw"]
    assert "2.bias/exp_avg_sq" in names["adamw"]


KINDS = ("sgd", "adagrad", "adamw")


def test_room_for_replicated_tables_is_behind_the_gradients() -> None:
    dense = DensePart(model(), settings("sgd"), extra=9)
    dense.extra.fill_(2.0)
    assert float(dense.buffer.sum()) == 18.0
    dense.zero()
    assert float(dense.buffer.abs().sum()) == 0.0
