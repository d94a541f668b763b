"""Carries counts, ids, vectors and gradients over one hop of the exchange.

What travels back is the gradient of the SUM of the losses; 1/G (G rows of the global batch) is applied in fp32
after it arrived. Ahead of each message of gradients goes one number: 0, or not 0 where the sender saw a non-finite
value, so that no rank updates a table when any rank must stop.

Legend: B samples of this rank, S slots and M members of the hop, D width of a fused table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

from dlrmx.parallel.codec import Codec, Fp32
from dlrmx.parallel.hops import Hop
from dlrmx.parallel.packing import Packing
from dlrmx.parallel.routing import Received, Routed
from dlrmx.parallel.sparse_hop import PendingSparseGradients, PendingSparseVectors, SparseHop, Sums
from dlrmx.parallel.wire import Pending, Wire


class Order(IntEnum):
    """What rank 0 tells all ranks to do when the step that it opens is finished."""

    GO_ON = 0
    SAVE = 1
    STOP = 2


@dataclass(frozen=True)
class Header:
    """What every rank tells every other before a step: they must agree on all but `order`."""

    sequence: int  # counts exchanges: a rank that is one ahead is found at once
    step: int
    batch: int  # G, rows of the global batch
    order: int  # rank 0's word to all

    def numbers(self) -> list[int]:
        return [self.sequence, self.step, self.batch, self.order]


@dataclass(frozen=True)
class Counts:
    """How much every member sends to this one, and what the first member wants done after this step."""

    header: Header  # this rank's own
    bags: torch.Tensor  # (M, S) touched bags that come from each member; 0 for slots not served here
    by_chunk: torch.Tensor  # (n, M, S) the same by chunk of the member's samples
    lookups: torch.Tensor  # (M, S) ids
    order: Order


class Carrier:
    """One hop's exchange among its members."""

    def __init__(
        self,
        hop: Hop,
        weighted: Sequence[bool],
        wire: Wire,
        device: torch.device,
        *,
        forward: Codec | None = None,
        backward: Codec | None = None,
    ) -> None:
        """weighted: whether each slot of the hop has weights. forward, backward: the wire formats, fp32 by default."""
        self.hop, self.packing = hop, Packing(hop)
        self.sparse: SparseHop | None = None
        self._forward, self._backward = forward or Fp32(), backward or Fp32()
        self._wire, self._device = wire, device
        self._served = [torch.tensor(served, dtype=torch.int64) for served in hop.served]
        self._weighted = np.array(weighted, dtype=bool)

    def counts(self, routed: Routed, header: Header, chunks: Sequence[Routed] = ()) -> "PendingCounts":
        """Start telling every member how much it gets; `chunks`: how its bags lie in chunks, in one by default."""
        by_chunk, lookups = [chunk.bags for chunk in chunks or (routed,)], routed.lookups
        head = torch.tensor(header.numbers(), dtype=torch.int32)
        parts = [
            part.to(torch.int32)
            for member, served in enumerate(self._served)
            for part in (head, *(bags[member, served] for bags in by_chunk), lookups[member, served])
        ]
        sizes = [len(head) + (len(by_chunk) + 1) * len(served) for served in self._served]
        mine = [sizes[self._wire.rank]] * self._wire.world
        return PendingCounts(
            self._wire.all_to_all("counts", torch.cat(parts).to(self._device), sizes, mine),
            header,
            self._served[self._wire.rank],
            len(self.hop.slots),
            len(by_chunk),
        )

    def ids(self, routed: Routed, counts: Counts) -> "PendingIds":
        """Start sending ids, with the lengths of slots that have a bag of several; weights go in a second message."""
        sent_bags, sent_ids = routed.bags.numpy(), routed.lookups.numpy()
        told = sent_bags != sent_ids  # a slot whose bags all hold one id needs no lengths
        in_bags, in_ids = counts.bags.numpy(), counts.lookups.numpy()
        lengths_in = np.where(in_bags != in_ids, in_bags, 0).sum(axis=1)
        lengths_out = np.where(told, sent_bags, 0).sum(axis=1)
        keep = torch.from_numpy(np.repeat(told.ravel(), sent_bags.ravel())).to(self._device)
        lengths = routed.lengths[keep].split(lengths_out.tolist())
        ids = routed.ids.split(sent_ids.sum(axis=1).tolist())
        message = torch.cat([part for pair in zip(lengths, ids, strict=True) for part in pair])
        out_counts = (lengths_out + sent_ids.sum(axis=1)).tolist()
        pending = self._wire.all_to_all("ids", message, out_counts, (lengths_in + in_ids.sum(axis=1)).tolist())
        weights = None
        if self._weighted.any():
            out_weights = sent_ids[:, self._weighted].sum(axis=1).tolist()
            in_weights = in_ids[:, self._weighted].sum(axis=1).tolist()
            weights = self._wire.all_to_all("ids", routed.weights, out_weights, in_weights)
        return PendingIds(pending, weights, in_bags, in_ids, self._weighted)

    def coded(self, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """(bags, D) sums per fused table in their wire format; as they are where a threshold is to look at numbers."""
        detached = [tensor.detach() for tensor in sums]
        return detached if self.sparse is not None else [self._forward.encode(tensor) for tensor in detached]

    def vectors(
        self, coded: Sequence[torch.Tensor], routed: Routed, counts: Counts
    ) -> "PendingVectors | PendingSparseVectors":
        """Start sending `coded` vectors back to where their bags came from."""
        if self.sparse is not None:
            return self.sparse.vectors(coded, routed, counts.bags, counts.header.step)
        codec, widths = self._forward, self._widths(self._forward)
        message = self.packing.join(coded, counts.bags, codec.dtype)
        out_counts, in_counts = (self.packing.sizes(bags, widths) for bags in (counts.bags, routed.bags))
        return PendingVectors(self._wire.all_to_all("vectors", message, out_counts, in_counts), self, routed, codec)

    def gradients(
        self, sums: Sums, routed: Routed, counts: Counts, flag: float
    ) -> "PendingGradients | PendingSparseGradients":
        """Start sending the gradients of the leaves that vectors were added into: `sums` with gradients as leaves.

        `flag` is not 0 where this rank saw a non-finite value.
        """
        of_bags = self.packing.take(sums.leaves, routed.positions, routed.bags, routed.leaf_rows)
        if self.sparse is not None and sums.travelled is not None:
            step = counts.header.step
            return self.sparse.gradients(of_bags, sums.travelled, routed, counts.bags, step=step, flag=flag)
        codec, widths = self._backward, self._widths(self._backward)
        grads = [codec.encode(tensor) for tensor in of_bags]
        one_each = [1] * self._wire.world
        flags = torch.full((self._wire.world,), flag, device=self._device).to(codec.dtype)
        flagged = self._wire.all_to_all("gradients", flags, one_each, one_each, messages=1)
        message = self.packing.join(grads, routed.bags, codec.dtype)
        out_counts, in_counts = (self.packing.sizes(bags, widths) for bags in (routed.bags, counts.bags))
        pending = self._wire.all_to_all("gradients", message, out_counts, in_counts)
        return PendingGradients(pending, flagged, self, counts, codec)

    def separate(self, message: torch.Tensor, bags: torch.Tensor, codec: Codec) -> list[torch.Tensor]:
        """The (bags, D) vectors of each fused table in a message, decoded."""
        parts = self.packing.separate(message, bags, self._widths(codec))
        decoded = [codec.decode(part) for part in parts]
        return [part[:, :width].contiguous() for part, width in zip(decoded, self.hop.widths, strict=True)]

    def _widths(self, codec: Codec) -> list[int]:
        return [codec.width(width) for width in self.hop.widths]


@dataclass(frozen=True)
class PendingCounts:
    """The counts under way."""

    pending: Pending
    header: Header
    served: torch.Tensor
    num_slots: int
    num_chunks: int

    def wait(self) -> Counts:
        """Check that all members are at the same step of the same batch, and unpack."""
        length = len(self.header.numbers()) + (self.num_chunks + 1) * len(self.served)
        rows = self.pending.wait().cpu().view(-1, length).to(torch.int64)
        head, numbers = rows[:, :4], rows[:, 4:]
        expected = torch.tensor(self.header.numbers()[:3])
        assert bool((head[:, :3] == expected).all()), f"ranks are at different steps: {head.tolist()}"
        told = torch.zeros(self.num_chunks + 1, len(rows), self.num_slots, dtype=torch.int64)
        told[:, :, self.served] = numbers.view(len(rows), self.num_chunks + 1, len(self.served)).transpose(0, 1)
        by_chunk, lookups = told[:-1], told[-1]
        return Counts(self.header, by_chunk.sum(0), by_chunk, lookups, Order(int(head[0, 3])))


@dataclass(frozen=True)
class PendingIds:
    """Ids, lengths and weights under way."""

    pending: Pending
    pending_weights: Pending | None
    bags: np.ndarray  # (M, S)
    lookups: np.ndarray  # (M, S)
    weighted: np.ndarray  # (S,)

    def wait(self) -> Received:
        """Unpack: lengths that were left out are ones, and so are the weights of slots without any."""
        message = self.pending.wait()
        told = self.bags != self.lookups
        num_lengths = np.where(told, self.bags, 0).sum(axis=1)
        parts = message.split(np.stack([num_lengths, self.lookups.sum(axis=1)], axis=1).ravel().tolist())
        ids = torch.cat(parts[1::2])
        lengths = torch.ones(int(self.bags.sum()), dtype=torch.int32, device=ids.device)
        if told.any():
            lengths[_mask(told, self.bags, ids.device)] = torch.cat(parts[0::2])
        weights = None
        if self.pending_weights is not None:
            weights = torch.ones(len(ids), device=ids.device)
            weighted = np.broadcast_to(self.weighted, self.lookups.shape)
            weights[_mask(weighted, self.lookups, ids.device)] = self.pending_weights.wait()
        return Received(ids, lengths, weights)


@dataclass(frozen=True)
class PendingVectors:
    """Vectors under way to where their bags came from."""

    pending: Pending
    carrier: Carrier
    routed: Routed
    codec: Codec

    def wait(self) -> Sums:
        """The vectors of all members, added up in member order."""
        routed = self.routed
        vectors = self.carrier.separate(self.pending.wait(), routed.bags, self.codec)
        return Sums(self.carrier.packing.add_up(vectors, routed.positions, routed.bags, routed.leaf_rows))


@dataclass(frozen=True)
class PendingGradients:
    """Gradients under way to the members that the bags were sent to."""

    pending: Pending
    flags: Pending
    carrier: Carrier
    counts: Counts
    codec: Codec

    def wait(self) -> tuple[list[torch.Tensor], list[int]]:
        """Per fused table the (bags, D) gradients of the loss sum, and the members that raised the flag."""
        flagged: list[int] = self.flags.wait().nonzero().view(-1).tolist()
        return self.carrier.separate(self.pending.wait(), self.counts.bags, self.codec), flagged


def _mask(which: np.ndarray, counts: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.repeat(which.ravel(), counts.ravel())).to(device)
