"""Of pooled vectors and their gradients only the large entries travel (DCT's model-parallel half), over one hop.

Forward, a rank that pooled sends the entries of at least tau of its table; the owner of the sample takes the others as
zero. Backward, the owner sends the entries of at least another tau among those that came, as the others had no part in
the loss. Both taus are one number per table, found anew every so many steps from the wanted sparsity: the exact
quantile over what all ranks would send in that step. Nothing is held back: a sample's residual means nothing to the
next sample. (DCT, arXiv 2010.08899, algorithm 2; whether the paper restricts gradients to the forward mask is not
known.) Where a table is cut by rows, partial sums are thresholded, for they are what travels: a sum over ranks is known
only when they have.

Both ends know which entries were sent forward, so that a gradient's places are told among those alone.

Legend: M members of the hop, S slots, T tables, D width of a fused table; messages are flat, in (member, fused table,
slot, bag) order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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

    def due(self, step: int) -> bool:
        """Whether the thresholds are set anew in this step."""
        return self._threshold.sparsity > 0 and step % self._threshold.every == 0  # without it 0 lets all through

    def refresh(self, tensors: Sequence[torch.Tensor], bags: torch.Tensor, within: torch.Tensor | None) -> None:
        """Set the thresholds by what all ranks would send now: (bags, D) per fused table, bags (M, S). Collective.

        within: which entries of the joined message can travel at all; None: all.
        """
        groups = [of.unsqueeze(1).expand_as(tensor) for of, tensor in zip(self._of(bags), tensors, strict=True)]
        values, group = self._packing.join(tensors, bags, torch.float32), self._packing.join(groups, bags, torch.int64)
        if within is not None:
            values, group = values[within], group[within]
        total = torch.bincount(group, minlength=len(self.tau))
        self._add_up(total)
        wanted = ((1 - self._threshold.sparsity) * total.double()).round().to(torch.int64).clamp(min=1)
        found = largest(values, group, wanted, self._add_up)
        self.tau.copy_(torch.where(total > 0, found, self.tau))

    def keep(self, tensors: Sequence[torch.Tensor], bags: torch.Tensor) -> torch.Tensor:
        """Which entries of the joined message are over their threshold, (n,) bool."""
        of_bags = zip(self._of(bags), tensors, strict=True)
        # A NaN is sent, and so found.
        over = [(tensor.abs() < self.tau[of].unsqueeze(1)).logical_not_() for of, tensor in of_bags]
        return self._packing.join(over, bags, torch.bool)

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
        parts = []
        for values, kept in zip(message.split(list(out_sizes)), keep.split(list(out_sizes)), strict=True):
            places = places_of(kept)
            parts.append(pack(self._codec.encode(values.index_select(0, places)), places, len(values)))
        heads = self._swap_heads(parts, flag)
        sizes = [body_bytes(head[:HEAD], self._codec.dtype) for head in heads]
        bodies = torch.cat([part.body for part in parts])
        pending = self._wire.all_to_all(self._kind, bodies, [len(part.body) for part in parts], sizes)
        return PendingSparse(pending, heads, sizes, in_sizes, self._codec.dtype)

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

    def wait(self) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        """The flat message, zero where nothing was sent; which entries were; the members that raised the flag."""
        bodies = self.pending.wait().split(list(self.sizes))
        message = torch.zeros(sum(self.lengths), device=self.heads.device)
        sent = torch.zeros(len(message), dtype=torch.bool, device=self.heads.device)
        first = 0
        for head, body, length in zip(self.heads, bodies, self.lengths, strict=True):
            values, places = unpack(head[:HEAD], body, length, self.dtype)
            message[first : first + length].scatter_(0, places, values)
            sent[first : first + length].index_fill_(0, places, True)
            first += length
        flagged: list[int] = self.heads[:, HEAD].nonzero().view(-1).tolist()
        return message, sent, flagged
