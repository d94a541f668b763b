"""The fused table: updates as in plain torch, and refusals of what fbgemm would take silently."""

import pytest
import torch

from dlrmx.parallel.fused import FusedTable
from dlrmx.recipe.schema import SparseOptimizer
from reference import update_table

CPU = torch.device("cpu")
RATE = 0.125


def table(kind: str = "sgd", rows: int = 10, dtype: str = "fp32") -> FusedTable:
    made = FusedTable(rows, 4, dtype, SparseOptimizer.model_validate({"kind": kind, "lr": RATE}), CPU)
    made.weight.copy_(torch.arange(rows * 4).view(rows, 4) / 64)
    return made


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad"])
def test_duplicates_are_summed_before_the_optimizer_is_applied(kind: str) -> None:
    made = table(kind)
    expected = made.weight.clone()
    pooled = made.look_up(ints(3, 3, 5, 3), ints(0, 2, 2, 4), None)
    assert torch.equal(pooled, torch.stack([2 * expected[3], torch.zeros(4), expected[5] + expected[3]]))
    gradient = torch.tensor([[1.0, 2, 0, -1], [9, 9, 9, 9], [0.5, 0, 0, 1]])
    pooled.backward(gradient)
    whole = torch.zeros(10, 4)
    whole[3] = 2 * gradient[0] + gradient[2]
    whole[5] = gradient[2]
    sums = torch.zeros(10, 4) if kind == "adagrad" else torch.zeros(10)
    update_table(expected, whole, sums, made.optimizer, lr=RATE)
    torch.testing.assert_close(made.weight, expected, rtol=1e-6, atol=1e-7)
    if kind != "sgd":
        assert made.state is not None
        torch.testing.assert_close(made.state, sums, rtol=1e-6, atol=0)


def test_weights_scale_their_rows() -> None:
    made = table()
    row = made.weight[2].clone()
    pooled = made.look_up(ints(2, 2), ints(0, 2), torch.tensor([0.5, 4.0]))
    assert torch.equal(pooled[0], 4.5 * row)
    pooled.backward(torch.ones(1, 4))
    assert torch.equal(made.weight[2], row - RATE * 4.5)


def test_the_rate_is_that_of_the_look_up() -> None:
    made = table()
    row = made.weight[0].clone()
    made.set_learning_rate(1.0)
    pooled = made.look_up(ints(0), ints(0, 1), None)
    made.set_learning_rate(100.0)  # too late for this step
    pooled.backward(torch.ones(1, 4))
    assert torch.equal(made.weight[0], row - 1.0)


def test_half_precision_rounds_to_nearest() -> None:
    made = table(dtype="fp16")
    row = made.weight[7].clone()
    pooled = made.look_up(ints(7), ints(0, 1), None)
    assert pooled.dtype == torch.float32
    pooled.backward(torch.full((1, 4), 1e-3))
    assert made.weight.dtype == torch.float16
    assert torch.equal(made.weight[7], (row.float() - RATE * 1e-3).half())


@pytest.mark.parametrize("row", [-1, 10, 2**31 - 1])
def test_a_row_outside_is_refused(row: int) -> None:
    with pytest.raises(AssertionError, match="of 10"):
        table().look_up(ints(0, row), ints(0, 2), None)


@pytest.mark.parametrize("offsets", [(0, 1), (1, 2), (0, 3), (0, 2, 1, 2)])
def test_offsets_that_do_not_fit_are_refused(offsets: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        table().look_up(ints(0, 1), ints(*offsets), None)


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(AssertionError):
        table().look_up(ints(0, 1), ints(0, 2), torch.ones(1))


def test_a_rank_without_rows_has_an_empty_table() -> None:
    made = FusedTable(0, 4, "fp32", SparseOptimizer(kind="rowwise_adagrad", lr=RATE), CPU)
    assert made.weight.shape == (0, 4)
    assert made.state is not None
    assert made.state.shape == (0,)
    pooled = made.look_up(ints(), ints(0), None)
    pooled.backward(torch.zeros(0, 4))
    with pytest.raises(AssertionError):
        made.look_up(ints(0), ints(0, 1), None)
