"""Entries as bytes: what goes in comes out, in the shortest of three ways."""

import pytest
import torch

from dlrmx.parallel.sparse_code import EVERY, GAPS, MASK, Packed, body_bytes
from dlrmx.parallel.sparse_code import pack as pack_places
from dlrmx.parallel.sparse_code import unpack as unpack_places

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def pack(values: torch.Tensor, sent: torch.Tensor, dtype: torch.dtype, *, tell: bool = True) -> Packed:
    places = sent.nonzero().view(-1)
    return pack_places(values[places].to(dtype), places, len(values), tell=tell)


def unpack(head: torch.Tensor, body: torch.Tensor, total: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = unpack_places(head, body, total, dtype)
    found, sent = torch.zeros(total), torch.zeros(total, dtype=torch.bool)
    found[places], sent[places] = values, True
    return found, sent


def part(length: int, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    sent = torch.rand(length, generator=generator) < share
    return torch.where(sent, torch.randn(length, generator=generator), 0), sent


@pytest.mark.parametrize("length", [0, 1, 5, 8, 255, 256, 511, 10_000])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 0.3, 0.6, 0.97, 1.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tell", [True, False])
def test_a_part_comes_out_as_it_went_in(length: int, share: float, dtype: torch.dtype, tell: bool) -> None:
    values, sent = part(length, share)
    packed = pack(values, sent, dtype, tell=tell)
    most = dtype.itemsize * length + (-(-length // 8) if tell else 0)
    assert len(packed.body) == body_bytes(packed.head, dtype) <= most
    message = torch.cat([torch.zeros(3, dtype=torch.uint8), packed.body])[3:]  # a part begins anywhere in a message
    found, hit = unpack(packed.head, message, length, dtype)
    assert torch.equal(found, values.to(dtype).to(torch.float32))
    assert torch.equal(hit, sent) or (not tell and int(packed.head[0]) == EVERY)


@pytest.mark.parametrize(("share", "how"), [(0.0, GAPS), (0.05, GAPS), (0.3, MASK), (0.99, MASK), (1.0, EVERY)])
def test_the_shortest_way_is_taken(share: float, how: int) -> None:
    assert int(pack(*part(10_000, share), torch.float16).head[0]) == how


def test_where_places_need_not_be_told_all_values_may_be_shorter() -> None:
    assert int(pack(*part(10_000, 0.99), torch.float16, tell=False).head[0]) == EVERY


def test_bytes_at_a_twentieth() -> None:
    values, sent = part(100_000, 0.05)
    # Gaps of 20 on average: one in 10 ** 6 is longer than 254.
    assert len(pack(values, sent, torch.float16).body) == pytest.approx(3 * int(sent.sum()), rel=1e-3)


@pytest.mark.parametrize("gap", [0, 1, 253, 254, 255, 256, 509, 510, 511, 765, 5000])
def test_gaps_of_every_length(gap: int) -> None:
    places = torch.tensor([gap, 2 * gap + 1, 3 * gap + 2])
    sent = torch.zeros(20_000, dtype=torch.bool)
    sent[places] = True
    values = torch.where(sent, 1.5, 0.0)
    packed = pack(values, sent, torch.float32)
    assert int(packed.head[0]) == GAPS
    assert len(packed.body) == 3 * 4 + 3 * (1 + gap // 255)
    found, hit = unpack(packed.head, packed.body, len(sent), torch.float32)
    assert torch.equal(found, values)
    assert torch.equal(hit, sent)


def test_minus_zero_keeps_its_sign() -> None:
    values, sent = torch.tensor([-0.0, 0.0, 0.0, 0.0] * 20), torch.tensor([True, False, False, False] * 20)
    found, _ = unpack(*_parts(values, sent), 80, torch.float32)
    assert torch.equal(torch.signbit(found), torch.signbit(values))


def _parts(values: torch.Tensor, sent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    packed = pack(values, sent, torch.float32)
    return packed.head, packed.body
