"""The sum of a buffer in a wire format equals one process that does the same arithmetic, in every bit."""

import numpy as np
import pytest
import torch

from dlrmx.parallel.codec import make_codec
from dlrmx.parallel.coded_sum import start_coded_sum
from dlrmx.parallel.wire import Wire
from dlrmx.plan.style import DENSE_ROW as ROW
from dlrmx.recipe.schema import DenseFormat
from ranks import run_ranks, sent_bytes

FORMATS: tuple[DenseFormat, ...] = ("fp16", "bf16", "int8")
SIZES = (1, 100, 5 * ROW, 7 * ROW + 3)


def part(rank: int, size: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng([rank, size]).normal(size=size).astype(np.float32))


def summed() -> dict[tuple[DenseFormat, int], torch.Tensor]:
    wire, found = Wire(), {}
    for name in FORMATS:
        for size in SIZES:
            found[name, size] = start_coded_sum(part(wire.rank, size), make_codec(name), wire).wait()
    return found


def by_one_process(name: DenseFormat, size: int, world: int) -> torch.Tensor:
    """Each rank's part rounded, added in rank order in fp32, and the sum rounded."""

    def rounded(flat: torch.Tensor) -> torch.Tensor:
        codec = make_codec(name)
        rows = torch.nn.functional.pad(flat, (0, -len(flat) % ROW)).view(-1, ROW)
        return codec.decode(codec.encode(rows)).view(-1)[: len(flat)]

    total = rounded(part(0, size))
    for rank in range(1, world):
        total = total + rounded(part(rank, size))
    return rounded(total)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_equals_one_process_in_every_bit_on_all_ranks(world: int) -> None:
    for found in run_ranks(world, summed):
        for (name, size), got in found.items():
            assert torch.equal(got, by_one_process(name, size, world)), (name, size)


def traffic() -> dict[str, int]:
    wire = Wire()
    sent: dict[str, int] = {}
    for name in FORMATS:
        start_coded_sum(part(wire.rank, 100 * ROW), make_codec(name), wire).wait()
        sent[name] = sent_bytes(wire)["dense"]
    return sent


def test_bytes_are_those_of_the_format() -> None:
    numbers = 2 * 100 * ROW  # the buffer to the adders, and half of it to each of two ranks
    for sent in run_ranks(2, traffic):
        assert sent == {"fp16": 2 * numbers, "bf16": 2 * numbers, "int8": numbers * (ROW + 4) // ROW}
