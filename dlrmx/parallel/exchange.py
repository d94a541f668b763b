"""The rectangle exchange: ids out, look-up, vectors back, gradients the same way back, exact update.

One code path for every sharding type: a table is a set of rectangles, and which rank holds them is the plan's
matter. The stages of a step are methods that start a collective and are awaited by the caller, in this order:

    route -> counts -> ids -> look up -> vectors -> (model forward and backward) -> gradients -> update

What travels back is the gradient of the SUM of the losses; 1/G (G rows of the global batch) is applied in fp32
after it arrived. Each message of gradients ends in one number: 0, or not 0 where the sender saw a non-finite value,
so that no rank updates a table when any rank must stop.

Legend: B samples of this rank, S slots, W ranks, F fused tables, D width of a fused table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

from dlrmx.data.batches import Bags
from dlrmx.parallel.fused import FusedTable
from dlrmx.parallel.layout import Layout
from dlrmx.parallel.packing import Packing
from dlrmx.parallel.routing import Routed, Router
from dlrmx.parallel.wire import Pending, Wire
from dlrmx.recipe.schema import SparseOptimizer


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
    """How much every rank sends to this one, and what rank 0 wants done after this step."""

    bags: torch.Tensor  # (W, S) touched bags that come from each rank; 0 for slots not served here
    lookups: torch.Tensor  # (W, S) ids
    order: Order


@dataclass(frozen=True)
class Received:
    """The ids and lengths that came, of all fused tables; (rank, slot, bag) order."""

    ids: torch.Tensor  # (n,) int32
    lengths: torch.Tensor  # (m,) int32
    weights: torch.Tensor | None  # (n,) fp32


@dataclass(frozen=True)
class Boundary:
    """Where the sharded part meets the plain model: autograd leaves, one per fused table."""

    leaves: tuple[torch.Tensor, ...]  # each (slots of the fused table * B, D)
    slots: tuple[torch.Tensor, ...]  # S views (B, D) of the leaves


class Exchange:
    """The sharded tables of one rank, and the exchange with all others."""

    def __init__(self, layout: Layout, wire: Wire, optimizer: SparseOptimizer, device: torch.device) -> None:
        self._layout, self._wire, self._device = layout, wire, device
        self.tables = tuple(
            FusedTable(layout.fused_rows(wire.rank, index), width, dtype, optimizer, device)
            for index, (width, dtype, _tier) in enumerate(layout.fused)
        )
        self._router = Router(layout, device)
        self._packing = Packing(layout)
        self._served = [torch.tensor(layout.served(rank), dtype=torch.int64) for rank in range(layout.world)]
        self._weighted = np.array([slot.weighted for slot in layout.slots], dtype=bool)
        self._sequence = 0

    # ------------------------------------------------------------------------------------ stages

    def route(self, bags: Sequence[Bags], batch: int) -> Routed:
        """Owner side: where each id goes. No communication."""
        return self._router.route(bags, batch)

    def counts(self, routed: Routed, *, step: int, batch: int, order: Order) -> "PendingCounts":
        """Start telling every rank how much it gets; opens a step."""
        header = Header(self._sequence, step, batch, int(order))
        self._sequence += 1
        bags, lookups = routed.bags, routed.lookups
        head = torch.tensor(header.numbers(), dtype=torch.int32)
        parts = [
            part.to(torch.int32)
            for rank, served in enumerate(self._served)
            for part in (head, bags[rank, served], lookups[rank, served])
        ]
        sizes = [len(head) + 2 * len(served) for served in self._served]
        mine = [sizes[self._wire.rank]] * self._wire.world
        return PendingCounts(
            self._wire.all_to_all("counts", torch.cat(parts).to(self._device), sizes, mine),
            header,
            self._served[self._wire.rank],
            len(self._layout.slots),
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

    def look_up(self, received: Received, counts: Counts) -> tuple[torch.Tensor, ...]:
        """Pool every bag that came; one (bags, D) tensor per fused table, in (rank, slot, bag) order."""
        pooled = []
        for index, table in enumerate(self.tables):
            ids = self._packing.part(received.ids, counts.lookups, index)
            lengths = self._packing.part(received.lengths, counts.bags, index)
            weights = None if received.weights is None else self._packing.part(received.weights, counts.lookups, index)
            offsets = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=self._device)
            torch.cumsum(lengths, 0, dtype=torch.int32, out=offsets[1:])
            pooled.append(table.look_up(ids, offsets, weights))
        return tuple(pooled)

    def vectors(self, pooled: Sequence[torch.Tensor], routed: Routed, counts: Counts) -> "PendingVectors":
        """Start sending the pooled vectors back to the owners of their samples."""
        message = self._packing.join([tensor.detach() for tensor in pooled], counts.bags)
        pending = self._wire.all_to_all(
            "vectors", message, self._packing.sizes(counts.bags), self._packing.sizes(routed.bags)
        )
        return PendingVectors(pending, self._packing, routed)

    def gradients(self, boundary: Boundary, routed: Routed, counts: Counts, flag: float) -> "PendingGradients":
        """Start sending the gradients of the loss sum; `flag` is not 0 where this rank saw a non-finite value."""
        rows = self._packing.positions(routed.positions, routed.bags, routed.batch)
        grads = [_grad(leaf).index_select(0, row) for leaf, row in zip(boundary.leaves, rows, strict=True)]
        last = torch.full((1,), flag, device=self._device)
        out_counts = [size + 1 for size in self._packing.sizes(routed.bags)]
        in_counts = [size + 1 for size in self._packing.sizes(counts.bags)]
        message = self._packing.join(grads, routed.bags, last)
        pending = self._wire.all_to_all("gradients", message, out_counts, in_counts)
        return PendingGradients(pending, in_counts, self._packing, counts)

    def update(self, pooled: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Run the kernels' backward passes: duplicates are summed, then the optimizer is applied to each row once."""
        for tensor, gradient in zip(pooled, gradients, strict=True):
            tensor.backward(gradient)


@dataclass(frozen=True)
class PendingCounts:
    """The counts under way."""

    pending: Pending
    header: Header
    served: torch.Tensor
    num_slots: int

    def wait(self) -> Counts:
        """Check that all ranks are at the same step of the same batch, and unpack."""
        rows = self.pending.wait().cpu().view(-1, len(self.header.numbers()) + 2 * len(self.served)).to(torch.int64)
        head, numbers = rows[:, :4], rows[:, 4:]
        expected = torch.tensor(self.header.numbers()[:3])
        assert bool((head[:, :3] == expected).all()), f"ranks are at different steps: {head.tolist()}"
        bags = torch.zeros(len(rows), self.num_slots, dtype=torch.int64)
        lookups = torch.zeros_like(bags)
        bags[:, self.served] = numbers[:, : len(self.served)]
        lookups[:, self.served] = numbers[:, len(self.served) :]
        return Counts(bags, lookups, Order(int(head[0, 3])))


@dataclass(frozen=True)
class PendingIds:
    """Ids, lengths and weights under way."""

    pending: Pending
    pending_weights: Pending | None
    bags: np.ndarray  # (W, S)
    lookups: np.ndarray  # (W, S)
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
    """Vectors under way to the owners of their samples."""

    pending: Pending
    packing: Packing
    routed: Routed

    def wait(self) -> Boundary:
        """Add the vectors of all ranks into each bag, in rank order; untouched bags are zero."""
        packing, routed = self.packing, self.routed
        positions = packing.positions(routed.positions, routed.bags, routed.batch)
        leaves: list[torch.Tensor] = []
        slots: list[torch.Tensor] = []
        for vectors, rows, (first, last) in zip(
            packing.separate(self.pending.wait(), routed.bags), positions, packing.ranges, strict=True
        ):
            leaf = vectors.new_zeros((last - first) * routed.batch, vectors.shape[1]).index_add_(0, rows, vectors)
            leaves.append(leaf.requires_grad_(torch.is_grad_enabled()))
            slots += list(leaf.view(last - first, routed.batch, vectors.shape[1]))  # a rank may have no rows
        return Boundary(tuple(leaves), tuple(slots))


@dataclass(frozen=True)
class PendingGradients:
    """Gradients under way to the ranks that hold the rows."""

    pending: Pending
    sizes: Sequence[int]
    packing: Packing
    counts: Counts

    def wait(self) -> tuple[list[torch.Tensor], list[int]]:
        """Per fused table the (bags, D) gradients of the loss sum, and the ranks that raised the flag."""
        parts = self.pending.wait().split(list(self.sizes))
        flagged = [rank for rank, part in enumerate(parts) if float(part[-1]) != 0.0]
        body = torch.cat([part[:-1] for part in parts])
        return self.packing.separate(body, self.counts.bags), flagged


def _mask(which: np.ndarray, counts: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.repeat(which.ravel(), counts.ravel())).to(device)


def _grad(leaf: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
