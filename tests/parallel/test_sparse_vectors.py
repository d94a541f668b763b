"""Thresholded vectors over a hop: what comes out, and the thresholds, equal the algorithm in one process."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dlrmx.parallel.codec import Fp32
from dlrmx.parallel.packing import Packing
from dlrmx.parallel.sparse_vectors import SparseWay
from dlrmx.parallel.wire import Wire
from dlrmx.recipe.schema import Threshold
from ranks import run_ranks

WORLD, SPARSITY, EVERY, STEPS = 3, 0.8, 2, 4
TABLES = (0, 0, 1, 2)  # of four slots; the last two are of the second fused table
RANGES, WIDTHS = ((0, 2), (2, 4)), (8, 4)


@dataclass(frozen=True)
class OneHop:
    """What Packing asks of a hop."""

    members: tuple[int, ...] = tuple(range(WORLD))
    ranges: tuple[tuple[int, int], ...] = RANGES
    widths: tuple[int, ...] = WIDTHS


def bags_to(sender: int) -> torch.Tensor:
    """Bags by receiver and slot."""
    return torch.tensor([[(sender + 2 * receiver + slot) % 4 for slot in range(4)] for receiver in range(WORLD)])


def vectors_of(sender: int, step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(10 * step + sender)
    bags = bags_to(sender)
    scales = (1.0, 100.0)  # each table group has its own
    return [
        scale * torch.randn(int(bags[:, first:last].sum()), width, generator=generator)
        for (first, last), width, scale in zip(RANGES, WIDTHS, scales, strict=True)
    ]


def one_rank() -> list[dict[str, Any]]:
    wire = Wire()
    packing = Packing(OneHop())  # type: ignore[arg-type]
    way = SparseWay(
        "vectors", Threshold(sparsity=SPARSITY, every=EVERY), TABLES, 4, packing, wire, torch.device("cpu"), Fp32()
    )
    mine = bags_to(wire.rank)
    theirs = torch.stack([bags_to(sender)[wire.rank] for sender in range(WORLD)])
    seen = []
    for step in range(STEPS):
        tensors = vectors_of(wire.rank, step)
        if way.due(step):
            way.refresh(tensors, mine, None)
        keep, message = way.keep(tensors, mine), packing.join(tensors, mine, torch.float32)
        pending = way.start(
            message, keep, packing.sizes(mine, WIDTHS), packing.sizes(theirs, WIDTHS), flag=int(wire.rank == 1)
        )
        values, sent, flagged = pending.wait()
        seen.append({"values": values, "sent": sent, "flagged": flagged, "tau": way.tau.clone()})
    return seen


@pytest.fixture(scope="module")
def seen() -> list[list[dict[str, Any]]]:
    return run_ranks(WORLD, one_rank)


def flat(sender: int, receiver: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What one rank has for another, in message order: entries and their tables."""
    tensors, bags = vectors_of(sender, step), bags_to(sender)
    entries, tables = [], []
    for tensor, (first, last) in zip(tensors, RANGES, strict=True):
        row = int(bags[:receiver, first:last].sum())
        for slot in range(first, last):
            count = int(bags[receiver, slot])
            entries.append(tensor[row : row + count].reshape(-1))
            tables.append(torch.full_like(entries[-1], TABLES[slot]))
            row += count
    return torch.cat(entries), torch.cat(tables)


def thresholds(step: int) -> torch.Tensor:
    everything = [flat(sender, receiver, step) for sender in range(WORLD) for receiver in range(WORLD)]
    entries = torch.cat([part for part, _ in everything]).abs()
    tables = torch.cat([part for _, part in everything])
    found = []
    for table in range(3):
        ordered = entries[tables == table].sort(descending=True).values
        found.append(ordered[max(1, round((1 - SPARSITY) * len(ordered))) - 1])
    return torch.stack([*found, torch.tensor(0.0)])  # of the fourth table nothing travels


def test_values_and_thresholds_equal_those_of_one_process(seen: list[list[dict[str, Any]]]) -> None:
    for step in range(STEPS):
        tau = thresholds(step - step % EVERY)
        for receiver in range(WORLD):
            found = seen[receiver][step]
            assert torch.equal(found["tau"], tau)
            parts = [flat(sender, receiver, step) for sender in range(WORLD)]
            entries = torch.cat([entry for entry, _ in parts])
            kept = entries.abs() >= tau[torch.cat([table for _, table in parts]).long()]
            assert torch.equal(found["sent"], kept.nonzero().view(-1))
            assert torch.equal(found["values"], torch.where(kept, entries, 0))


def test_the_flag_names_its_member(seen: list[list[dict[str, Any]]]) -> None:
    assert all(found["flagged"] == [1] for rank in seen for found in rank)
