"""Carries vectors and gradients over one hop where only entries over a threshold travel.

Legend: D width of a fused table; a message has n entries, those of all vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dlrmx.parallel.packing import Packing
from dlrmx.parallel.routing import Routed
from dlrmx.parallel.sparse_vectors import PendingSparse, SparseWay, numbers_in


@dataclass(frozen=True)
class Travelled:
    """Ascending places of the entries that travelled forward: in the message that was sent, in the one that came."""

    sent: torch.Tensor
    came: torch.Tensor


@dataclass(frozen=True)
class Sums:
    """(leaf_rows, D) per fused table; travelled: None where nothing is thresholded."""

    leaves: list[torch.Tensor]
    travelled: Travelled | None = None


class SparseHop:
    """Both directions of one hop."""

    def __init__(self, packing: Packing, widths: Sequence[int], forward: SparseWay, backward: SparseWay) -> None:
        self.packing, self.widths = packing, widths
        self.forward, self.backward = forward, backward

    def due(self, step: int) -> bool:
        """Whether either direction's thresholds are set anew in this step, by the messages of it all."""
        return self.forward.due(step) or self.backward.due(step)

    def vectors(
        self, sums: Sequence[torch.Tensor], routed: Routed, bags: torch.Tensor, step: int
    ) -> "PendingSparseVectors":
        """Start sending the large entries of (bags, D) sums per fused table; bags (M, S): what came to be summed."""
        way = self.forward
        if torch.is_grad_enabled() and way.due(step):  # an evaluation takes the thresholds as they are
            way.refresh(sums, bags, None)
        keep, message = way.keep(sums, bags), self.packing.join(sums, bags, torch.float32)
        out_sizes, in_sizes = (self.packing.sizes(each, self.widths) for each in (bags, routed.bags))
        return PendingSparseVectors(way.start(message, keep, out_sizes, in_sizes), self, routed)

    def gradients(
        self,
        of_bags: Sequence[torch.Tensor],
        travelled: Travelled,
        routed: Routed,
        bags: torch.Tensor,
        *,
        step: int,
        flag: float,
    ) -> "PendingSparseGradients":
        """Start sending the large ones among the gradients, (bags, D) per fused table, of entries that came."""
        way, came = self.backward, travelled.came
        if way.due(step):
            way.refresh(of_bags, routed.bags, came)
        asked = self.packing.join(of_bags, routed.bags, torch.float32).index_select(0, came)
        keep = way.over(asked, way.tau_at(came, routed.bags, self.widths))
        out_sizes, in_sizes = self._numbers(came, routed.bags), self._numbers(travelled.sent, bags)
        pending = way.start(asked, keep, out_sizes, in_sizes, int(flag != 0))
        return PendingSparseGradients(pending, self, bags, travelled.sent)

    def _numbers(self, places: torch.Tensor, bags: torch.Tensor) -> list[int]:
        """Per member, how many of these places in a message are in its part."""
        numbers: list[int] = numbers_in(places, torch.tensor(self.packing.sizes(bags, self.widths))).tolist()
        return numbers


@dataclass(frozen=True)
class PendingSparseVectors:
    """Entries of vectors under way to where their bags came from."""

    pending: PendingSparse
    hop: SparseHop
    routed: Routed

    def wait(self) -> Sums:
        """The vectors of all members, zero where nothing was sent, added up."""
        message, came, _ = self.pending.wait()
        routed, packing = self.routed, self.hop.packing
        vectors = packing.separate(message, routed.bags, self.hop.widths)
        leaves = packing.add_up(vectors, routed.positions, routed.bags, routed.leaf_rows)
        return Sums(leaves, Travelled(self.pending.places(), came))


@dataclass(frozen=True)
class PendingSparseGradients:
    """Entries of gradients under way to the members that the bags were sent to."""

    pending: PendingSparse
    hop: SparseHop
    bags: torch.Tensor
    sent: torch.Tensor  # the places of the entries that this rank sent forward

    def wait(self) -> tuple[list[torch.Tensor], list[int]]:
        """(bags, D) per fused table, zero where nothing was sent, forward or back; the members that raised the flag."""
        values, _, flagged = self.pending.wait()
        packing, widths = self.hop.packing, self.hop.widths
        message = values.new_zeros(sum(packing.sizes(self.bags, widths))).scatter_(0, self.sent, values)
        return packing.separate(message, self.bags, widths), flagged
