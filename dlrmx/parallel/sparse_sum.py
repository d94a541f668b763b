"""The sum of the dense gradients over all ranks, of which only the large entries travel (DCT's data-parallel half).

Each rank adds what it held back to its gradient, sends the entries of at least tau to the rank that owns them, and
holds the rest back (error feedback). The owner adds in rank order and sends the entries that anybody sent to all. An
all-gather of everybody's entries would need no owner and cost W / 2 times the bytes. tau is one number per parameter,
found anew every so many steps from the wanted sparsity: the exact quantile over the entries of all ranks. In between
the sparsity floats. (DCT, arXiv 2010.08899, algorithm 1, without its parameter server.)

In a wire format narrower than fp32, what rounding takes from an entry is held back as well: by the rank that sent it,
and what it takes from a sum by its owner. Not what clamping takes: that is lost, as without thresholds, for a single
1e30 would be sent as the format's largest number in every step from then on.

Legend: N entries of the flat gradient, T parameters, W ranks, n entries of a part (what one rank owns).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dlrmx.parallel.codec import Codec
from dlrmx.parallel.largest import largest
from dlrmx.parallel.sparse_code import HEAD, Packed, body_bytes, pack, places_of, unpack
from dlrmx.parallel.wire import Pending, Wire
from dlrmx.plan.shards import cut
from dlrmx.plan.style import FEWEST
from dlrmx.recipe.schema import Threshold


class SparseSum:
    """Sums a flat gradient over all ranks, and keeps what this rank held back."""

    def __init__(
        self,
        settings: Threshold,
        sizes: Sequence[int],
        wire: Wire,
        device: torch.device,
        codec: Codec,
    ) -> None:
        self._settings, self._wire, self._device, self._codec = settings, wire, device, codec
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

    def start(self, gradient: torch.Tensor, *, step: int) -> "PendingSparseSum":
        """Start replacing `gradient` (N,), finite, by the sum over all ranks of what each sends. Collective."""
        entries = self.residual.add_(gradient)
        if self._settings.sparsity and step % self._settings.every == 0:  # without it 0 lets all through
            self._refresh(entries)
        keep = self.keep(entries)
        parts = [self._take(entries[first:last], places_of(keep[first:last])) for first, last in self._parts()]
        return PendingSparseSum(self, gradient, self._tell(parts))

    def finish(self, gradient: torch.Tensor, told: "Told") -> None:
        """Add what came from all ranks, send the sum to all, and fill `gradient` with all sums. Collective."""
        first, last = self._parts()[self._wire.rank]
        total = gradient.new_zeros(last - first)
        touched = torch.zeros_like(total, dtype=torch.bool)
        for values, places in self._bring(told, [last - first] * self._wire.world):
            total.index_add_(0, places, values)
            touched.index_fill_(0, places, True)
        answer = self._take(total, places_of(touched))
        self.residual[first:last] += total  # what its rounding took
        lengths = [last - first for first, last in self._parts()]
        answers = self._bring(self._tell([answer] * self._wire.world), lengths)
        for part, (values, places) in zip(gradient.zero_().split(lengths), answers, strict=True):
            part.scatter_(0, places, values)

    def _take(self, entries: torch.Tensor, places: torch.Tensor) -> Packed:
        """Take entries out, to be sent; what their format cannot say stays."""
        values = entries.index_select(0, places)
        coded = self._codec.encode(values)
        decoded = self._codec.decode(coded)
        clamped = decoded.abs() >= torch.finfo(self._codec.dtype).max
        entries.index_copy_(0, places, (values - decoded).masked_fill_(clamped, 0))
        return pack(coded, places, len(entries), tell=False)

    def keep(self, entries: torch.Tensor) -> torch.Tensor:
        """Which entries (N,) are over their threshold, (N,) bool."""
        sizes = self._sizes.tolist()
        below = torch.empty(len(entries), dtype=torch.bool, device=entries.device)
        for part, tau, into in zip(entries.abs().split(sizes), self.tau, below.split(sizes), strict=True):
            torch.lt(part, tau, out=into)
        return below.logical_not_()  # a NaN is sent, and so found

    def _parts(self) -> list[tuple[int, int]]:
        return list(zip(self._cuts[:-1], self._cuts[1:], strict=True))

    def _refresh(self, entries: torch.Tensor) -> None:
        groups = torch.repeat_interleave(torch.arange(len(self._sizes), device=self._device), self._sizes)
        self.tau.copy_(
            largest(entries, groups, self._wanted, lambda counts: self._wire.all_reduce("dense", counts).wait())
        )
        self.tau.masked_fill_(self._wanted == self._wire.world * self._sizes, 0)  # all, also of the steps to come

    def _tell(self, packed: Sequence[Packed]) -> "Told":
        """Start telling rank r how much part r is."""
        each = [HEAD] * self._wire.world
        heads = self._wire.all_to_all("dense", torch.cat([part.head for part in packed]), each, each)
        return Told(packed, heads)

    def _bring(self, told: "Told", lengths: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Send part r to rank r; what came from each rank: values, and their places among lengths[r] entries."""
        came = told.heads.wait().view(-1, HEAD)
        sizes = [body_bytes(head, self._codec.dtype) for head in came]
        bodies = torch.cat([part.body for part in told.parts])
        body = self._wire.all_to_all("dense", bodies, [len(part.body) for part in told.parts], sizes).wait()
        return [
            unpack(head, part, length, self._codec.dtype)
            for head, part, length in zip(came, body.split(sizes), lengths, strict=True)
        ]


@dataclass(frozen=True)
class Told:
    """Parts that are to be sent, and what all ranks tell each other of theirs, under way."""

    parts: Sequence[Packed]
    heads: Pending


@dataclass(frozen=True)
class PendingSparseSum:
    """A sum of which all ranks are being told how much it is."""

    summing: SparseSum
    gradient: torch.Tensor
    told: Told

    def wait(self) -> None:
        """Fill the gradient with the sums. Collective."""
        self.summing.finish(self.gradient, self.told)
