"""Of pooled vectors and their gradients only the large entries travel (DCT's model-parallel half), over one hop.

Forward, a rank that pooled sends the entries of at least tau of its table; the owner of the sample takes the others as
zero. Backward, the owner sends the entries of at least another tau among those that came, as the others had no part in
the loss. Both taus are one number per table, found anew every so many steps from the wanted sparsity: the exact
quantile over what all ranks would send in that step. Nothing is held back: a sample's residual means nothing to the
next sample. (DCT, arXiv 2010.08899, algorithm 2; whether the paper restricts gradients to the forward mask is not
known.) Where a table is cut by rows, partial sums are thresholded, for they are what travels: a sum over ranks is known
only when they have.

Both ends know which entries were sent forward, so that a gradient's places are told among those alone, and only those
are looked at.

Legend: M members of the hop, S slots, T tables, D width of a fused table; messages are flat, in (member, fused table,
slot, bag) order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from dlrmx.parallel.codec import Codec
from dlrmx.parallel.largest import largest
from dlrmx.parallel.packing import Packing
from dlrmx.parallel.sparse_code import HEAD, Packed, body_bytes, pack, places_of, unpack
from dlrmx.parallel.wire import Kind, Pending, Wire
from dlrmx.recipe.schema import Threshold

HEAD_AND_FLAG = HEAD + 1


class SparseWay:
    """One direction of a hop. tau (T,): its thresholds, part of a checkpoint; 0 until the first are set."""

    def __init__(
        self,
        kind: Kind,
        threshold: Threshold,
        tables: Sequence[int],
        num_tables: int,
        packing: Packing,
        wire: Wire,
        device: torch.device,
        codec: Codec,
    ) -> None:
        """tables: the table of each slot of the hop, 0 to T - 1; codec: the values' format on the wire."""
        self._kind: Kind = kind
        self._threshold, self._packing, self._wire, self._codec = threshold, packing, wire, codec
        self._tables = torch.tensor(tables, dtype=torch.int64)
        self.tau = torch.zeros(num_tables, device=device)
        # Only tables whose vectors travel have thresholds to find.
        self._found = torch.tensor(sorted(set(tables)), dtype=torch.int64, device=device)
        self._place = torch.zeros(num_tables, dtype=torch.int64, device=device)
        self._place[self._found] = torch.arange(len(self._found), device=device)

    def due(self, step: int) -> bool:
        """Whether the thresholds are set anew in this step."""
        finds = self._threshold.sparsity > 0 and len(self._found) > 0  # without a sparsity 0 lets all through
        return finds and step % self._threshold.every == 0

    def refresh(self, tensors: Sequence[torch.Tensor], bags: torch.Tensor, within: torch.Tensor | None) -> None:
        """Set the thresholds by what all ranks would send now: (bags, D) per fused table, bags (M, S). Collective.

        within: places of the entries of the joined message that can travel at all; None: all.
        """
        groups = [of.unsqueeze(1).expand_as(tensor) for of, tensor in zip(self._of(bags), tensors, strict=True)]
        values, group = self._packing.join(tensors, bags, torch.float32), self._packing.join(groups, bags, torch.int64)
        if within is not None:
            values, group = values.index_select(0, within), group.index_select(0, within)
        group = self._place[group]
        total = torch.bincount(group, minlength=len(self._found))
        self._add_up(total)
        wanted = ((1 - self._threshold.sparsity) * total.double()).round().to(torch.int64).clamp(min=1)
        found = largest(values, group, wanted, self._add_up)
        self.tau[self._found] = torch.where(total > 0, found, self.tau[self._found])

    def keep(self, tensors: Sequence[torch.Tensor], bags: torch.Tensor) -> torch.Tensor:
        """Which entries of the joined message are over their threshold, (n,) bool."""
        of_bags = zip(self._of(bags), tensors, strict=True)
        over = [self.over(tensor, self.tau[of].unsqueeze(1)) for of, tensor in of_bags]
        return self._packing.join(over, bags, torch.bool)

    def over(self, values: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
        """Which values are over their thresholds, bool."""
        return (values.abs() < tau).logical_not_()  # a NaN is sent, and so found

    def tau_at(self, places: torch.Tensor, bags: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """The threshold of each of these places (k,) of a joined message, (k,); widths: of the fused tables."""
        slots = zip(widths, self._packing.ranges, strict=True)
        of_slot = torch.tensor([width for width, (first, last) in slots for _ in range(first, last)], dtype=torch.int64)
        tau = self.tau[self._tables.repeat(len(bags)).to(self.tau.device)]
        return torch.repeat_interleave(tau, numbers_in(places, (bags * of_slot).view(-1)))

    def start(
        self,
        message: torch.Tensor,
        keep: torch.Tensor,
        out_sizes: Sequence[int],
        in_sizes: Sequence[int],
        flag: int = 0,
    ) -> "PendingSparse":
        """Start sending the entries `keep` of a flat message, out_sizes[m] of it to member m.

        in_sizes[m]: how long the message from member m would be with all of its entries. Waits for the heads.
        """
        sent = [places_of(kept) for kept in keep.split(list(out_sizes))]
        parts = [
            pack(self._codec.encode(values.index_select(0, places)), places, len(values))
            for values, places in zip(message.split(list(out_sizes)), sent, strict=True)
        ]
        heads = self._swap_heads(parts, flag)
        sizes = [body_bytes(head[:HEAD], self._codec.dtype) for head in heads]
        bodies = torch.cat([part.body for part in parts])
        pending = self._wire.all_to_all(self._kind, bodies, [len(part.body) for part in parts], sizes)
        return PendingSparse(pending, heads, sizes, in_sizes, self._codec.dtype, sent, out_sizes)

    def _swap_heads(self, parts: Sequence[Packed], flag: int) -> torch.Tensor:
        last = torch.tensor([flag], dtype=torch.int32, device=self.tau.device)
        heads = torch.cat([piece for part in parts for piece in (part.head, last)])
        each = [HEAD_AND_FLAG] * self._wire.world
        return self._wire.all_to_all(self._kind, heads, each, each).wait().view(-1, HEAD_AND_FLAG)

    def _of(self, bags: torch.Tensor) -> list[torch.Tensor]:
        """Per fused table the table of each bag, (bags,)."""
        return [
            torch.repeat_interleave(self._tables[first:last].repeat(len(bags)), bags[:, first:last].reshape(-1)).to(
                self.tau.device
            )
            for first, last in self._packing.ranges
        ]

    def _add_up(self, counts: torch.Tensor) -> None:
        self._wire.all_reduce(self._kind, counts).wait()


@dataclass(frozen=True)
class PendingSparse:
    """Entries under way."""

    pending: Pending
    heads: torch.Tensor  # (M, HEAD + 1)
    sizes: Sequence[int]  # bytes from each member
    lengths: Sequence[int]  # entries of the whole message from each
    dtype: torch.dtype
    sent: Sequence[torch.Tensor]  # places of what this rank sends to each, in that part of the whole message
    sent_lengths: Sequence[int]  # entries of the whole message to each

    def places(self) -> torch.Tensor:
        """Places of what this rank sends, in the whole message."""
        return _in_whole(self.sent, self.sent_lengths)

    def wait(self) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        """The flat message, zero where nothing was sent; places of what was; the members that raised the flag."""
        bodies = self.pending.wait().split(list(self.sizes))
        message = torch.zeros(sum(self.lengths), device=self.heads.device)
        came = []
        for head, body, part in zip(self.heads, bodies, message.split(list(self.lengths)), strict=True):
            values, places = unpack(head[:HEAD], body, len(part), self.dtype)
            part.scatter_(0, places, values)
            came.append(places)
        flagged: list[int] = self.heads[:, HEAD].nonzero().view(-1).tolist()
        return message, _in_whole(came, self.lengths), flagged


def numbers_in(places: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """How many of the ascending places lie in each of consecutive parts of so many entries, (parts,) int64."""
    upto = torch.searchsorted(places, sizes.cumsum(0).to(places.device))
    return torch.diff(upto, prepend=upto.new_zeros(1))


def _in_whole(places: Sequence[torch.Tensor], lengths: Sequence[int]) -> torch.Tensor:
    """Places within parts of so many entries, as places in the whole of them, ascending."""
    return torch.cat([part + first for part, first in zip(places, accumulate(lengths[:-1], initial=0), strict=True)])
