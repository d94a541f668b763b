"""The rectangle exchange: ids out, look-up, vectors back, gradients the same way back, exact update.

One code path for every sharding type: a table is a set of rectangles, and which rank holds them is the plan's
matter. The stages of a step are methods that start a collective and are awaited by the caller, in this order:

    route -> counts -> ids -> arrive -> look up -> vectors -> (model forward and backward) -> gradients -> update

Vectors and gradients go in chunks of the batch (chunks.py), all else for the whole of it.

Every id takes one hop, to the rank that holds its row; that of a table routed by node takes two (hops.py), and its
vectors and gradients come and go by the same two.

Legend: B samples of this rank, S slots, D width of a fused table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from dlrmx.data.batches import Bags
from dlrmx.parallel.carrier import (
    Carrier,
    Counts,
    Header,
    Order,
    PendingCounts,
    PendingGradients,
    PendingIds,
    PendingVectors,
)
from dlrmx.parallel.chunks import Chunk, Chunked, both_sides, in_chunks, joined, part_of
from dlrmx.parallel.codec import Codec, Codecs
from dlrmx.parallel.fused import FusedTable
from dlrmx.parallel.hops import all_ranks, own_node
from dlrmx.parallel.layout import Layout
from dlrmx.parallel.routing import Received, Routed, Router
from dlrmx.parallel.sparse_hop import PendingSparseGradients, PendingSparseVectors, SparseHop, Sums, Travelled
from dlrmx.parallel.sparse_vectors import SparseWay
from dlrmx.parallel.wire import Kind, Wire
from dlrmx.recipe.schema import SparseOptimizer, Threshold, Thresholds


@dataclass(frozen=True)
class Arrived:
    """What one hop brought to this rank."""

    counts: Counts
    received: Received


@dataclass(frozen=True)
class PassedOn:
    """What this rank passed on inside its node, and what came to it so."""

    routed: Routed
    came: Arrived


@dataclass(frozen=True)
class Requests:
    """The bags that this rank is to look up or to have looked up in its node, for one batch of all ranks."""

    came: Arrived
    passed_on: PassedOn | None  # None where no table is routed by node


@dataclass(frozen=True)
class Boundary:
    """Where the sharded part meets the plain model for one chunk: autograd leaves, one per fused table."""

    chunk: Chunk

    leaves: tuple[torch.Tensor, ...]  # each (slots of the fused table * B, D)
    slots: tuple[torch.Tensor, ...]  # S views (B, D) of the leaves
    travelled: Travelled | None  # which entries travelled; None: all


@dataclass(frozen=True)
class InNode:
    """The second hop of this rank, and the places of its fused tables in the first."""

    router: Router
    carrier: Carrier
    places: tuple[int, ...]


class Exchange:
    """The sharded tables of one rank, and the exchange with all others."""

    def __init__(
        self, layout: Layout, wire: Wire, optimizer: SparseOptimizer, device: torch.device, codecs: Codecs
    ) -> None:
        self._wire, self._device = wire, device
        self.tables = tuple(
            FusedTable(
                layout.fused_rows(wire.rank, index),
                key.width,
                key.dtype,
                optimizer,
                device,
                tier=key.tier,
                cache_ratio=layout.cache_ratio(wire.rank, index),
            )
            for index, key in enumerate(layout.fused)
        )
        world = all_ranks(layout, wire.rank)
        self._router = Router(layout, world, device)
        weighted = [slot.weighted for slot in layout.slots]
        self._world = Carrier(world, weighted, wire, device, forward=codecs.forward, backward=codecs.backward)
        self._in_node: InNode | None = None
        if (node := own_node(layout, wire.rank)) is not None:
            assert wire.ranks_per_node == layout.ranks_per_node, (wire.ranks_per_node, layout.ranks_per_node)
            # Inside a node fp32: links are fast there, and partial sums would be rounded twice.
            carrier = Carrier(node, [weighted[slot] for slot in node.slots], wire.in_node(), device)
            places = tuple(world.fused.index(fused) for fused in node.fused)
            self._in_node = InNode(Router(layout, node, device), carrier, places)
        self._sequence = 0

    def threshold(self, settings: Thresholds, codecs: Codecs, layout: Layout, tables: Sequence[str]) -> None:
        """Let only entries over thresholds travel, if the recipe says so. tables: all of it, in its order.

        The hop inside a node is left as it is: links are fast there, and what is thresholded twice loses twice.
        """
        if settings.forward is None and settings.backward is None:
            return
        of_slot = [tables.index(slot.table) for slot in layout.slots]
        directions: tuple[tuple[Kind, Threshold | None, Codec], ...] = (
            ("vectors", settings.forward, codecs.forward),
            ("gradients", settings.backward, codecs.backward),
        )
        packing, wire, all_travels = self._world.packing, self._wire, Threshold(sparsity=0.0)
        forward, backward = (
            SparseWay(kind, way or all_travels, of_slot, len(tables), packing, wire, self._device, codec)
            for kind, way, codec in directions
        )
        self._world.sparse = SparseHop(packing, self._world.hop.widths, forward, backward)

    def thresholds(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The thresholds of each direction, (tables,), to save or to fill; nothing where none are set."""
        if self._world.sparse is not None:
            yield "forward", self._world.sparse.forward.tau
            yield "backward", self._world.sparse.backward.tau

    def finds_thresholds(self, step: int) -> bool:
        """Whether a step sets thresholds anew, for which it looks at the whole batch."""
        return self._world.sparse is not None and self._world.sparse.due(step)

    # ------------------------------------------------------------------------------------ stages

    def route(self, bags: Sequence[Bags], batch: int, chunks: int = 1) -> Chunked:
        """Owner side: where each id of `batch` samples goes, and in which chunk. No communication."""
        return in_chunks(self._router.route(bags, batch), batch, chunks)

    def counts(self, routed: Chunked, *, step: int, batch: int, order: Order) -> PendingCounts:
        """Start telling every rank how much it gets; opens a step."""
        header = Header(self._sequence, step, batch, int(order))
        self._sequence += 1
        return self._world.counts(routed.whole, header, routed.chunks)

    def ids(self, routed: Chunked, counts: Counts) -> PendingIds:
        """Start sending ids, lengths and weights."""
        return self._world.ids(routed.whole, counts)

    def arrive(self, received: Received, counts: Counts) -> Requests:
        """Pass the ids of tables that are routed by node on to the ranks that hold their rows. Collective in a node."""
        came = Arrived(counts, received)
        if self._in_node is None:
            return Requests(came, None)
        carrier = self._in_node.carrier
        routed = self._in_node.router.pass_on(received, counts.bags, counts.lookups)
        told = carrier.counts(routed, counts.header).wait()
        return Requests(came, PassedOn(routed, Arrived(told, carrier.ids(routed, told).wait())))

    def look_up(self, requests: Requests) -> tuple[torch.Tensor, ...]:
        """Pool every bag that came to be looked up here: (bags, D) per fused table, in (member, slot, bag) order."""
        pooled = [torch.empty(0)] * len(self._world.hop.fused)
        in_node = () if self._in_node is None else self._in_node.places
        for place in range(len(pooled)):
            if place not in in_node:
                pooled[place] = self._pool(self._world, requests.came, place)
        if self._in_node is not None and requests.passed_on is not None:
            for inner, place in enumerate(in_node):
                pooled[place] = self._pool(self._in_node.carrier, requests.passed_on.came, inner)
        return tuple(pooled)

    def _pool(self, carrier: Carrier, came: Arrived, place: int) -> torch.Tensor:
        counts, received, part = came.counts, came.received, carrier.packing.part
        ids, lengths = part(received.ids, counts.lookups, place), part(received.lengths, counts.bags, place)
        weights = None if received.weights is None else part(received.weights, counts.lookups, place)
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=self._device)
        torch.cumsum(lengths, 0, dtype=torch.int32, out=offsets[1:])
        return self.tables[carrier.hop.fused[place]].look_up(ids, offsets, weights)

    def vectors(self, pooled: Sequence[torch.Tensor], routed: Chunked, requests: Requests) -> "list[PendingBoundary]":
        """Start sending the sums back to the owners of their samples, those of by_node tables added up in the node.

        One message for each chunk; they come in this order.
        """
        sums = list(pooled)
        if self._in_node is not None and requests.passed_on is not None:
            places, passed_on = self._in_node.places, requests.passed_on
            own = [pooled[place] for place in places]
            carrier = self._in_node.carrier
            added = carrier.vectors(carrier.coded(own), passed_on.routed, passed_on.came.counts).wait().leaves
            for place, tensor in zip(places, added, strict=True):
                sums[place] = tensor
        ranges, coded = self._world.hop.ranges, self._world.coded(sums)  # whole: a chunk's rows are fewer bytes then
        return [
            PendingBoundary(self._world.vectors(part_of(coded, chunk), chunk.routed, chunk.counts), chunk, ranges)
            for chunk in both_sides(routed, requests.came.counts, self._world.hop)
        ]

    def gradients(self, boundary: Boundary, flag: float) -> "PendingSums":
        """Start sending a chunk's gradients of the loss sum; `flag` is not 0 where this rank saw a non-finite value."""
        gradients, chunk = Sums([_grad(leaf) for leaf in boundary.leaves], boundary.travelled), boundary.chunk
        return PendingSums(self._world.gradients(gradients, chunk.routed, chunk.counts, flag), chunk)

    def arrived(self, under_way: "Sequence[PendingSums]", requests: Requests) -> tuple[list[torch.Tensor], list[int]]:
        """Per fused table the (bags, D) gradients of the loss sum, and the ranks that raised the flag in any chunk.

        Collective in a node where a table is routed by node.
        """
        came = [(pending.chunk, *pending.pending.wait()) for pending in under_way]
        gradients = joined([(chunk, tensors) for chunk, tensors, _ in came])
        flagged = sorted({rank for _, _, ranks in came for rank in ranks})
        if self._in_node is not None and requests.passed_on is not None:
            places, passed_on = self._in_node.places, requests.passed_on
            own = Sums([gradients[place] for place in places])
            inside, _ = self._in_node.carrier.gradients(own, passed_on.routed, passed_on.came.counts, 0.0).wait()
            for place, gradient in zip(places, inside, strict=True):
                gradients[place] = gradient
        return gradients, flagged

    def update(self, pooled: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Run the kernels' backward passes: duplicates are summed, then the optimizer is applied to each row once."""
        for tensor, gradient in zip(pooled, gradients, strict=True):
            tensor.backward(gradient)


@dataclass(frozen=True)
class PendingBoundary:
    """Vectors under way to the owners of their samples."""

    pending: PendingVectors | PendingSparseVectors
    chunk: Chunk
    ranges: tuple[tuple[int, int], ...]

    def wait(self) -> Boundary:
        """The leaves of the model's graph, and their views by slot."""
        sums = self.pending.wait()
        leaves = [leaf.requires_grad_(torch.is_grad_enabled()) for leaf in sums.leaves]
        slots: list[torch.Tensor] = []
        for leaf, (first, last) in zip(leaves, self.ranges, strict=True):
            slots += list(leaf.view(last - first, len(leaf) // (last - first), leaf.shape[1]))  # there may be no rows
        return Boundary(self.chunk, tuple(leaves), tuple(slots), sums.travelled)


@dataclass(frozen=True)
class PendingSums:
    """A chunk's gradients under way to the ranks that hold the rows."""

    pending: PendingGradients | PendingSparseGradients
    chunk: Chunk


def _grad(leaf: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
