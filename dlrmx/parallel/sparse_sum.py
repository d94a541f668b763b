"""The sum of the dense gradients over all ranks, of which only the large entries travel (DCT's data-parallel half).

Each rank adds what it held back to its gradient, sends the entries of at least tau to the rank that owns them, and
holds the rest back (error feedback). The owner adds in rank order and sends the entries that anybody sent to all. An
all-gather of everybody's entries would need no owner and cost W / 2 times the bytes. tau is one number per parameter,
found anew every so many steps from the wanted sparsity: the exact quantile over the entries of all ranks. In between
the sparsity floats. (DCT, arXiv 2010.08899, algorithm 1, without its parameter server.)

On the wire an entry is its place within a block of 65,536 in 16 bits, and its value; each block's count goes ahead. A
part in which that would be longer than all of its values goes as those.

Legend: N entries of the flat gradient, T parameters, W ranks, n entries of a part (what one rank owns).
"""

from collections.abc import Sequence

import torch

from dlrmx.parallel.largest import largest
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import cut
from dlrmx.recipe.schema import Threshold

BLOCK = 1 << 16
FEWEST = 256  # a smaller parameter is sent whole
VALUE_BYTES, PLACE_BYTES = 4, 2
ALL = -1  # instead of a block's count: the whole part is sent


class SparseSum:
    """Sums a flat gradient over all ranks, and keeps what this rank held back."""

    def __init__(self, settings: Threshold, sizes: Sequence[int], wire: Wire, device: torch.device) -> None:
        self._settings, self._wire, self._device = settings, wire, device
        total, world = sum(sizes), wire.world
        self._cuts = [cut(total, world, rank) for rank in range(world + 1)]
        self._sizes = torch.tensor(sizes, dtype=torch.int64, device=device)
        # Of all ranks' entries of a parameter so many are to be sent.
        wanted = [
            world * size if size < FEWEST else max(1, round((1 - settings.sparsity) * world * size)) for size in sizes
        ]
        self._wanted = torch.tensor(wanted, dtype=torch.int64, device=device)
        self.residual = torch.zeros(total, device=device)
        self.tau = torch.zeros(len(sizes), device=device)
        self.sent = 0  # entries that this rank sent in the last step

    def sum(self, gradient: torch.Tensor, *, step: int) -> None:
        """Replace `gradient` (N,), finite, by the sum over all ranks of what each sent. Collective."""
        entries = self.residual.add_(gradient)
        if step % self._settings.every == 0:
            self._refresh(entries)
        mask = entries.abs() >= torch.repeat_interleave(self.tau, self._sizes)
        sending = torch.where(mask, entries, 0)
        self.sent = int(mask.sum())
        parts = [_pack(sending[first:last], mask[first:last]) for first, last in self._parts()]
        entries.masked_fill_(mask, 0)
        mine = self._cuts[self._wire.rank + 1] - self._cuts[self._wire.rank]
        (total, touched), *others = self._swap(parts, [mine] * self._wire.world)
        for values, hit in others:
            total += values
            touched |= hit
        answer = _pack(total, touched)
        lengths = [last - first for first, last in self._parts()]
        answers = self._swap([answer] * self._wire.world, lengths)
        torch.cat([values for values, _ in answers], out=gradient)

    def _parts(self) -> list[tuple[int, int]]:
        return list(zip(self._cuts[:-1], self._cuts[1:], strict=True))

    def _refresh(self, entries: torch.Tensor) -> None:
        groups = torch.repeat_interleave(torch.arange(len(self._sizes), device=self._device), self._sizes)
        self.tau.copy_(
            largest(entries, groups, self._wanted, lambda counts: self._wire.all_reduce("dense", counts).wait())
        )
        self.tau.masked_fill_(self._wanted == self._wire.world * self._sizes, 0)  # all, also of the steps to come

    def _swap(
        self, packed: Sequence[tuple[torch.Tensor, torch.Tensor]], lengths: Sequence[int]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Send part r to rank r; what came from each rank: values (lengths[r],), and which of them were sent."""
        heads = [_blocks(length) for length in lengths]
        head = self._wire.all_to_all("dense", torch.cat([h for h, _ in packed]), [len(h) for h, _ in packed], heads)
        counts = head.wait().split(heads)
        sizes = [_body_bytes(count, length) for count, length in zip(counts, lengths, strict=True)]
        bodies = [body for _, body in packed]
        body = self._wire.all_to_all("dense", torch.cat(bodies), [len(b) for b in bodies], sizes).wait()
        return [
            _unpack(count, part, length) for count, part, length in zip(counts, body.split(sizes), lengths, strict=True)
        ]


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _pack(values: torch.Tensor, sent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A part (n,), zero where it is not sent, as counts per block, int32, and a body of bytes: values, then places."""
    places = sent.nonzero().view(-1)
    counts = torch.bincount(places // BLOCK, minlength=_blocks(len(values))).to(torch.int32)
    if len(places) * (VALUE_BYTES + PLACE_BYTES) >= len(values) * VALUE_BYTES:
        return torch.full_like(counts, ALL), values.view(torch.uint8)
    within = (places % BLOCK - BLOCK // 2).to(torch.int16)
    return counts, torch.cat([values[places].view(torch.uint8), within.view(torch.uint8)])


def _body_bytes(counts: torch.Tensor, length: int) -> int:
    """Bytes of the body that comes with these counts."""
    if ALL in counts:
        return length * VALUE_BYTES
    return int(counts.sum()) * (VALUE_BYTES + PLACE_BYTES)


def _unpack(counts: torch.Tensor, body: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of `_pack`: values (length,), and which of them were sent."""
    if ALL in counts:
        return body.clone().view(torch.float32), torch.ones(length, dtype=torch.bool, device=body.device)
    number = int(counts.sum())
    sent_values, within = body.split([number * VALUE_BYTES, number * PLACE_BYTES])
    block = torch.repeat_interleave(torch.arange(len(counts), device=body.device), counts)
    places = block * BLOCK + within.clone().view(torch.int16) + BLOCK // 2
    values, sent = body.new_zeros(length, dtype=torch.float32), body.new_zeros(length, dtype=torch.bool)
    values[places] = sent_values.clone().view(torch.float32)
    sent[places] = True
    return values, sent
