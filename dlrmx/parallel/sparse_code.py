"""Which entries of a flat tensor travel, and their values, as bytes: the code of everything that is thresholded.

A head of three numbers goes ahead: how the places are told, how many entries there are, and in how many bytes their
places. The body is the values, then the places. Of three ways to tell them the shortest is taken: not at all (every
entry travels), one bit per entry, or the gap to each entry from the one before in a byte. In the last, a byte of 255
is a gap of 255 without an entry at its end; it is the shortest below about one entry in eight.

Legend: n entries of a part, k of them sent.
"""

from dataclasses import dataclass

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


def pack(values: torch.Tensor, sent: torch.Tensor, dtype: torch.dtype, *, tell: bool = True) -> Packed:
    """values (n,) fp32, zero where not sent; sent (n,) bool; dtype: the values' format on the wire.

    Without `tell`, a part whose places would take longer than all of its values goes as those, and comes out as sent
    throughout.
    """
    places = sent.nonzero().view(-1)
    total, count = len(values), len(places)
    longer = count * dtype.itemsize + min(-(-total // BITS), count) >= total * dtype.itemsize
    if count == total or (longer and not tell):
        return _packed(EVERY, total, values.to(dtype), values.new_empty(0, dtype=torch.uint8))
    coded = _gaps(places)
    if len(coded) > -(-total // BITS):
        return _packed(MASK, count, values[places].to(dtype), _bits(sent))
    return _packed(GAPS, count, values[places].to(dtype), coded)


def body_bytes(head: torch.Tensor, dtype: torch.dtype) -> int:
    """Bytes of the body that follows a head."""
    _, count, place_bytes = head.tolist()
    return int(count * dtype.itemsize + place_bytes)


def unpack(head: torch.Tensor, body: torch.Tensor, total: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of `pack`: values (total,) fp32, and which of them were sent, (total,) bool."""
    how, count, place_bytes = head.tolist()
    sent_values, coded = body.split([count * dtype.itemsize, place_bytes])
    found = sent_values.clone().view(dtype).to(torch.float32)  # a part of a message need not lie on a number's border
    if how == EVERY:
        return found, torch.ones(total, dtype=torch.bool, device=body.device)
    if how == MASK:
        bits = torch.arange(BITS, dtype=torch.uint8, device=body.device)
        sent = ((coded.unsqueeze(1) >> bits) & 1).view(-1)[:total].to(torch.bool)
    else:
        sent = torch.zeros(total, dtype=torch.bool, device=body.device)
        steps = coded.to(torch.int64)
        ends = steps != LONGEST
        sent[(torch.cumsum(steps + ends, 0) - 1)[ends]] = True
    values = torch.zeros(total, device=body.device)
    values[sent] = found
    return values, sent


def _packed(how: int, count: int, values: torch.Tensor, places: torch.Tensor) -> Packed:
    head = torch.tensor([how, count, len(places)], dtype=torch.int32, device=values.device)
    return Packed(head, torch.cat([values.view(torch.uint8), places]))


def _gaps(places: torch.Tensor) -> torch.Tensor:
    """Increasing places as gaps, a byte each and one more for every 255 of a gap."""
    gaps = torch.diff(places, prepend=places.new_full((1,), -1)) - 1
    ends = torch.cumsum(gaps // LONGEST + 1, 0) - 1
    coded = torch.full((int(ends[-1]) + 1 if len(ends) else 0,), LONGEST, dtype=torch.uint8, device=places.device)
    coded[ends] = (gaps % LONGEST).to(torch.uint8)
    return coded


def _bits(sent: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(sent.to(torch.uint8), (0, -len(sent) % BITS)).view(-1, BITS)
    return (padded << torch.arange(BITS, dtype=torch.uint8, device=sent.device)).sum(1, dtype=torch.uint8)
