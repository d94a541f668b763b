"""The flat dense part: one optimizer over one buffer equals torch's own over many parameters."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import nn

from dlrmx.parallel.dense import DensePart
from dlrmx.parallel.wire import Wire
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


def gradients_of(dense: DensePart, built: nn.Module) -> list[torch.Tensor]:
    sizes = [parameter.numel() for parameter in built.parameters()]
    return [
        part.view(parameter.shape)
        for part, parameter in zip(dense.gradient.split(sizes), built.parameters(), strict=True)
    ]


def loss_of(built: nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    output: torch.Tensor = built(torch.randn(16, 5, generator=generator))
    return (output**2).sum()


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "adamw"])
def test_one_flat_parameter_trains_as_many(kind: str) -> None:
    flat_model, plain_model = model(), model()
    dense, optimizer = DensePart(flat_model, settings(kind), extra=0), torch_optimizer(kind, plain_model)
    for step in range(STEPS):
        dense.begin()
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
        first.begin()
        loss_of(models[0], step).backward()
        first.step(1.0)
    for source, target in ((first.parameters, second.parameters), (first.optimizer_state, second.optimizer_state)):
        for (name, value), (other, place) in zip(source(), target(), strict=True):
            assert name == other
            place.copy_(value)
    for dense, built in zip((first, second), models, strict=True):
        dense.begin()
        loss_of(built, 99).backward()
        dense.step(0.5)
    for (name, left), (_, right) in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right), name


def test_the_rate_is_scaled() -> None:
    built = model()
    dense = DensePart(built, settings("sgd"), extra=0)
    before = {name: value.clone() for name, value in dense.parameters()}
    dense.begin()
    loss_of(built, 0).backward()
    dense.step(0.25)
    for name, value in dense.parameters():
        expected = before[name] - 0.1 * 0.25 * dict(zip(before, gradients_of(dense, built), strict=True))[name]
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7)


def test_only_what_matters_is_named_as_state() -> None:
    names = {kind: [n for n, _ in DensePart(model(), settings(kind), extra=0).optimizer_state()] for kind in KINDS}
    assert names["sgd"] == []
    assert names["adagrad"] == ["0.weight/sum", "0.bias/sum", "2.weight/sum", "2.bias/sum"]
    assert "step" in names["adamw"]
    assert "2.bias/exp_avg_sq" in names["adamw"]


KINDS = ("sgd", "adagrad", "adamw")


class LoneWire:
    """The sum over one rank. Keeps where each message began and how long it was."""

    def __init__(self, start: int) -> None:
        self.start, self.sent = start, list[tuple[int, int]]()

    def all_reduce(self, kind: str, buffer: torch.Tensor) -> SimpleNamespace:
        self.sent.append(((buffer.data_ptr() - self.start) // 4, len(buffer)))
        return SimpleNamespace(wait=lambda: buffer)


def sum_alone(dense: DensePart) -> None:
    dense.start_sum(cast(Wire, LoneWire(0)), step=0).wait()


def test_room_for_replicated_tables_is_behind_the_gradients() -> None:
    dense = DensePart(model(), settings("sgd"), extra=9)
    dense.extra.fill_(2.0)
    sum_alone(dense)
    assert float(dense.buffer.sum()) == 18.0
    assert len(dense.gradient) + 9 == len(dense.buffer)


def test_a_step_begins_without_the_gradients_of_the_one_before() -> None:
    built = model()
    dense = DensePart(built, settings("sgd"), extra=0)
    dense.begin()
    loss_of(built, 0).backward()
    assert float(dense.buffer.abs().sum()) > 0
    dense.begin()
    sum_alone(dense)
    assert float(dense.buffer.abs().sum()) == 0.0


def test_gradients_of_several_passes_are_added_up() -> None:
    built, plain = model(), model()
    dense = DensePart(built, settings("sgd"), extra=0)
    dense.begin(passes=2)
    for step in range(2):
        loss_of(built, step).backward()
        loss_of(plain, step).backward()
    wanted = torch.cat([parameter.grad.view(-1) for parameter in plain.parameters() if parameter.grad is not None])
    assert torch.equal(dense.gradient, wanted)


@pytest.mark.parametrize("passes", [1, 2])
def test_large_pieces_leave_under_the_last_backward_pass(passes: int) -> None:
    torch.manual_seed(3)
    wide = 1 << 11  # 16 MiB a layer, so each is a piece, its bias in it; the first, too small for one, goes alone
    built = nn.Sequential(nn.Linear(4, wide), nn.Linear(wide, wide), nn.Linear(wide, wide), nn.Linear(wide, 1))
    dense = DensePart(built, settings("sgd"), extra=3)
    wire = LoneWire(dense.buffer.data_ptr())
    dense.begin(cast(Wire, wire), passes=passes)
    sent = []
    for _ in range(passes):
        built(torch.randn(2, 4)).sum().backward()
        sent.append(len(wire.sent))
    dense.start_sum(cast(Wire, wire), step=0).wait()
    assert sent[:-1] == [0] * (passes - 1)
    assert sent[-1] == len(wire.sent) - 1  # all but what replicated tables add
    assert len(wire.sent) > 2
    ends = [start + length for start, length in wire.sent]
    assert ends[0] == len(dense.gradient)
    assert [start for start, _ in wire.sent[:-2]] == ends[1:-1]  # from the last parameters to the first, without gaps
    assert wire.sent[-2][0] == 0
    assert wire.sent[-1] == (len(dense.gradient), 3)


def test_the_first_parameter_that_is_not_finite_is_named() -> None:
    built = model()
    dense = DensePart(built, settings("sgd"), extra=0)
    dense.begin()
    assert dense.not_finite() is None
    (loss_of(built, 0) * float("inf")).backward()
    assert dense.not_finite() == "0.weight"
    dense.begin()
    assert dense.not_finite() is None
