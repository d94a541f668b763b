"""The thresholded sum of dense gradients equals the algorithm written out in one process, on any number of ranks."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dlrmx.parallel.codec import Fp32, make_codec
from dlrmx.parallel.sparse_sum import SparseSum
from dlrmx.parallel.wire import Wire
from dlrmx.plan.style import FEWEST
from dlrmx.recipe.schema import Threshold
from ranks import run_ranks, sent_bytes

SIZES = (10, 700, 5000)  # the first is below FEWEST
STEPS, EVERY = 7, 3
WORLDS = (1, 2, 3, 4)
TALL = torch.arange(sum(SIZES)).remainder(17).float() + 0.1  # some places always have larger gradients


def gradient(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(sum(SIZES), generator=generator) * TALL


@dataclass
class Seen:
    """What one rank saw: sums of each step, residual after the last, tau and traffic."""

    sums: list[torch.Tensor]
    residual: torch.Tensor
    tau: torch.Tensor
    bytes: list[int]


def run(sparsity: float, every: int) -> Seen:
    wire = Wire()
    summing = SparseSum(Threshold(sparsity=sparsity, every=every), SIZES, wire, torch.device("cpu"), Fp32())
    sums, traffic = [], []
    for step in range(STEPS):
        total = gradient(wire.rank, step)
        sent_bytes(wire)
        summing.start(total, step=step).wait()
        traffic.append(sent_bytes(wire)["dense"])
        sums.append(total)
    return Seen(sums, summing.residual, summing.tau, traffic)


def all_cases() -> dict[tuple[float, int], Seen]:
    return {case: run(*case) for case in CASES}


CASES = [(0.0, EVERY), (0.9, EVERY), (0.9, 1), (0.995, EVERY)]


@pytest.fixture(scope="module")
def seen() -> dict[int, list[dict[tuple[float, int], Seen]]]:
    return {world: run_ranks(world, all_cases) for world in WORLDS}


def emulate(world: int, sparsity: float, every: int) -> tuple[list[torch.Tensor], list[torch.Tensor], list[list[int]]]:
    """DCT's algorithm 1 in plain torch: thresholds by a sort, sums in rank order; entries sent by step and rank."""
    held = [torch.zeros(sum(SIZES)) for _ in range(world)]
    tau = torch.zeros(sum(SIZES))
    sums, counts = [], []
    for step in range(STEPS):
        held = [h + gradient(rank, step) for rank, h in enumerate(held)]
        if step % every == 0:
            parts = []
            for part in zip(*(h.split(SIZES) for h in held), strict=True):
                size, every_rank = len(part[0]), torch.cat(part).abs().sort(descending=True).values
                wanted = max(1, round((1 - sparsity) * len(every_rank)))
                parts.append(torch.full((size,), float(every_rank[wanted - 1]) if size >= FEWEST and sparsity else 0.0))
            tau = torch.cat(parts)
        counts.append([int((h.abs() >= tau).sum()) for h in held])
        sent = [torch.where(h.abs() >= tau, h, 0) for h in held]
        held = [torch.where(h.abs() >= tau, 0, h) for h in held]
        total = sent[0].clone()
        for other in sent[1:]:
            total += other
        sums.append(total)
    return sums, held, counts


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("world", WORLDS)
def test_equals_the_algorithm_in_one_process_in_every_bit(
    seen: dict[int, Any], world: int, case: tuple[float, int]
) -> None:
    sums, held, _ = emulate(world, *case)
    for rank in range(world):
        found = seen[world][rank][case]
        assert all(torch.equal(one, other) for one, other in zip(found.sums, sums, strict=True))
        assert torch.equal(found.residual, held[rank])


@pytest.mark.parametrize("world", WORLDS)
def test_with_nothing_below_the_threshold_it_is_the_dense_sum(seen: dict[int, Any], world: int) -> None:
    for step, total in enumerate(seen[world][0][0.0, EVERY].sums):
        expected = gradient(0, step)
        for rank in range(1, world):
            expected = expected + gradient(rank, step)
        assert torch.equal(total, expected)


@pytest.mark.parametrize("world", WORLDS)
def test_what_was_sent_and_what_is_held_is_all_there_was(seen: dict[int, Any], world: int) -> None:
    sent = torch.stack(seen[world][0][0.9, EVERY].sums).double().sum(0)
    held = torch.stack([seen[world][rank][0.9, EVERY].residual for rank in range(world)]).double().sum(0)
    raw = torch.stack([gradient(rank, step) for rank in range(world) for step in range(STEPS)]).double().sum(0)
    torch.testing.assert_close(sent + held, raw, rtol=1e-5, atol=1e-3)


def one_overflow() -> tuple[list[float], float, int]:
    """Of a place with 1e30 in the first of three steps and nothing then: its sums; what is held; numbers clamped."""
    codec = make_codec("fp16")
    summing = SparseSum(Threshold(sparsity=0.5, every=9), (300,), Wire(), torch.device("cpu"), codec)
    sums = []
    for step in range(3):
        total = torch.linspace(1, 2, 300) if step == 0 else torch.zeros(300)
        total[7] = 1e30 if step == 0 else 0.0
        summing.start(total, step=step).wait()
        sums.append(float(total[7]))
    return sums, float(summing.residual[7]), codec.clamped


def test_what_no_format_can_say_is_lost_and_counted_once() -> None:
    """Two ranks send fp16's largest, and the owner of their sum, 131,008, as well: three numbers are clamped."""
    found = run_ranks(2, one_overflow)
    assert [(sums, held) for sums, held, _ in found] == [([65_504.0, 0.0, 0.0], 0.0)] * 2
    assert sum(clamped for _, _, clamped in found) == 3


def test_a_refresh_in_each_step_sends_the_largest_share(seen: dict[int, Any]) -> None:
    """On one rank the sum is what was sent; on several, the emulation that the sums equal says how much that was."""
    for step, total in enumerate(seen[1][0][0.9, 1].sums):
        assert int((total != 0).sum()) == 10 + 70 + 500, step
    for world in WORLDS:
        for sent in emulate(world, 0.9, 1)[2]:
            assert sum(sent) == world * (10 + 70 + 500)


def test_bytes_at_two_ranks(seen: dict[int, Any]) -> None:
    """Between refreshes: 4 bytes a value and 1 to 2 a place, out and of the union back; heads of 12 bytes to each."""
    sent = emulate(2, 0.995, EVERY)[2]
    for rank, found in enumerate(entry[0.995, EVERY] for entry in seen[2]):
        for step in (1, 2, 4):
            mine = found.sums[step].split(sum(SIZES) // 2)[rank]
            entries = sent[step][rank] + 2 * int((mine != 0).sum())
            assert 5 * entries <= found.bytes[step] - 4 * 12 <= 6 * entries
