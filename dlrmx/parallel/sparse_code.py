"""Which entries of a flat tensor travel, and their values, as bytes: the code of everything that is thresholded.

A head of three numbers goes ahead: how the places are told, how many entries there are, and in how many bytes their
places. The body is the values, then the places. Of three ways to tell them the shortest is taken: not at all (every
entry travels), one bit per entry, or the gap to each entry from the one before in a byte. In the last, a byte of 255
is a gap of 255 without an entry at its end; it is the shortest below about one entry in eight.

Legend: n entries of a part, k of them sent.
"""

from dataclasses import dataclass

import numpy as np
import torch

EVERY, MASK, GAPS = range(3)
HEAD = 3
LONGEST = 255  # a gap byte that ends in no entry
BITS = 8


@dataclass(frozen=True)
class Packed:
    """A part as it travels."""

    head: torch.Tensor  # (HEAD,) int32
    body: torch.Tensor  # uint8


def places_of(mask: torch.Tensor) -> torch.Tensor:
    """Where a 1-D mask is true, ascending, int64."""
    if mask.device.type == "cpu":  # a quarter of the time
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.nonzero().view(-1)


def pack(values: torch.Tensor, places: torch.Tensor, total: int, *, tell: bool = True) -> Packed:
    """values (k,) in their format on the wire; places (k,) int64, ascending, of a part of `total` entries.

    Without `tell`, a part whose places would take longer than all of its values goes as those, and comes out as sent
    throughout.
    """
    count, size = len(places), values.element_size()
    longer = count * size + min(-(-total // BITS), count) >= total * size
    if count == total:
        return _packed(EVERY, total, values, values.new_empty(0, dtype=torch.uint8))
    if longer and not tell:
        every = values.new_zeros(total).index_copy_(0, places, values)
        return _packed(EVERY, total, every, values.new_empty(0, dtype=torch.uint8))
    coded = _gaps(places)
    if len(coded) > -(-total // BITS):
        return _packed(MASK, count, values, _bits(places, total))
    return _packed(GAPS, count, values, coded)


def body_bytes(head: torch.Tensor, dtype: torch.dtype) -> int:
    """Bytes of the body that follows a head."""
    _, count, place_bytes = head.tolist()
    return int(count * dtype.itemsize + place_bytes)


def unpack(head: torch.Tensor, body: torch.Tensor, total: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of `pack`: values (k,) fp32 and their places (k,) in a part of `total` entries."""
    how, count, place_bytes = head.tolist()
    sent_values, coded = body.split([count * dtype.itemsize, place_bytes])
    values = sent_values.clone().view(dtype).to(torch.float32)  # a part of a message need not lie on a number's border
    if how == EVERY:
        return values, torch.arange(total, device=body.device)
    if how == MASK:
        bits = torch.arange(BITS, dtype=torch.uint8, device=body.device)
        return values, places_of(((coded.unsqueeze(1) >> bits) & 1).view(-1)[:total].to(torch.bool))
    if len(coded) == count:  # no gap is that long
        return values, torch.cumsum(coded.to(torch.int64) + 1, 0) - 1
    steps = coded.to(torch.int64)
    ends = steps != LONGEST
    return values, (torch.cumsum(steps + ends, 0) - 1)[ends]


def _packed(how: int, count: int, values: torch.Tensor, places: torch.Tensor) -> Packed:
    head = torch.tensor([how, count, len(places)], dtype=torch.int32, device=values.device)
    return Packed(head, torch.cat([values.view(torch.uint8), places]))


def _gaps(places: torch.Tensor) -> torch.Tensor:
    """Increasing places as gaps, a byte each and one more for every 255 of a gap."""
    gaps = torch.diff(places, prepend=places.new_full((1,), -1)) - 1
    if not len(gaps) or int(gaps.max()) < LONGEST:
        return gaps.to(torch.uint8)
    ends = torch.cumsum(gaps // LONGEST + 1, 0) - 1
    coded = torch.full((int(ends[-1]) + 1,), LONGEST, dtype=torch.uint8, device=places.device)
    coded[ends] = (gaps % LONGEST).to(torch.uint8)
    return coded


def _bits(places: torch.Tensor, total: int) -> torch.Tensor:
    padded = torch.zeros(-(-total // BITS) * BITS, dtype=torch.uint8, device=places.device)
    padded[places] = 1
    return (padded.view(-1, BITS) << torch.arange(BITS, dtype=torch.uint8, device=places.device)).sum(
        1, dtype=torch.uint8
    )
