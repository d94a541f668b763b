"""The k-th largest magnitude, over groups and over ranks, equals a sort."""

import pytest
import torch

from dlrmx.parallel.largest import largest
from dlrmx.parallel.wire import Wire
from ranks import run_ranks

SIZES = (1, 40, 1000)


def values_of(rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    values = torch.randn(sum(SIZES), generator=generator) * torch.logspace(-30, 20, sum(SIZES))
    values[::7] = 0.0
    values[3::11] = -2.5  # many ties
    return values


def groups() -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))


def by_sorting(values: list[torch.Tensor], ranks: list[int]) -> torch.Tensor:
    parts = [
        torch.cat(part).abs().sort(descending=True).values
        for part in zip(*(v.split(SIZES) for v in values), strict=True)
    ]
    return torch.stack([part[rank - 1] for part, rank in zip(parts, ranks, strict=True)])


@pytest.mark.parametrize("ranks", [[1, 1, 1], [1, 20, 10], [1, 40, 1000], [1, 39, 500]])
def test_equals_a_sort_on_one_rank(ranks: list[int]) -> None:
    found = largest(values_of(0), groups(), torch.tensor(ranks), lambda counts: None)
    assert torch.equal(found, by_sorting([values_of(0)], ranks))


RANKS = [3, 77, 1234]


def on_each_rank() -> torch.Tensor:
    wire = Wire()
    return largest(values_of(wire.rank), groups(), torch.tensor(RANKS), lambda n: wire.all_reduce("dense", n).wait())


def test_equals_a_sort_of_all_ranks_values() -> None:
    expected = by_sorting([values_of(rank) for rank in range(3)], RANKS)
    for found in run_ranks(3, on_each_rank):
        assert torch.equal(found, expected)
