"""Carries vectors and gradients over one hop where only entries over a threshold travel.

Legend: D width of a fused table; a message has n entries, those of all vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dlrmx.parallel.packing import Packing
from dlrmx.parallel.routing import Routed
from dlrmx.parallel.sparse_code import places_of
from dlrmx.parallel.sparse_vectors import PendingSparse, SparseWay


@dataclass(frozen=True)
class Masks:
    """Which entries travelled forward: (n,) of the message that was sent, (n,) of the one that came."""

    sent: torch.Tensor
    came: torch.Tensor


@dataclass(frozen=True)
class Sums:
    """(leaf_rows, D) per fused table; masks: None where nothing is thresholded."""

    leaves: list[torch.Tensor]
    masks: Masks | None = None


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
        return PendingSparseVectors(way.start(message, keep, out_sizes, in_sizes), self, routed, keep)

    def gradients(
        self,
        of_bags: Sequence[torch.Tensor],
        masks: Masks,
        routed: Routed,
        bags: torch.Tensor,
        *,
        step: int,
        flag: float,
    ) -> "PendingSparseGradients":
        """Start sending the large ones among the gradients, (bags, D) per fused table, of entries that came."""
        way, came = self.backward, masks.came
        if way.due(step):
            way.refresh(of_bags, routed.bags, came)
        message, keep = self.packing.join(of_bags, routed.bags, torch.float32), way.keep(of_bags, routed.bags)
        places, sent = places_of(came), places_of(masks.sent)
        out_sizes, in_sizes = self._numbers(places, routed.bags), self._numbers(sent, bags)
        asked, wanted = message.index_select(0, places), keep.index_select(0, places)
        pending = way.start(asked, wanted, out_sizes, in_sizes, int(flag != 0))
        return PendingSparseGradients(pending, self, bags, sent, len(masks.sent))

    def _numbers(self, places: torch.Tensor, bags: torch.Tensor) -> list[int]:
        """Per member, how many of these places in a message are in its part."""
        ends = torch.tensor(self.packing.sizes(bags, self.widths), device=places.device).cumsum(0)
        upto = torch.searchsorted(places, ends)
        numbers: list[int] = torch.diff(upto, prepend=upto.new_zeros(1)).tolist()
        return numbers


@dataclass(frozen=True)
class PendingSparseVectors:
    """Entries of vectors under way to where their bags came from."""

    pending: PendingSparse
    hop: SparseHop
    routed: Routed
    sent: torch.Tensor

    def wait(self) -> Sums:
        """The vectors of all members, zero where nothing was sent, added up."""
        message, came, _ = self.pending.wait()
        routed, packing = self.routed, self.hop.packing
        vectors = packing.separate(message, routed.bags, self.hop.widths)
        return Sums(packing.add_up(vectors, routed.positions, routed.bags, routed.leaf_rows), Masks(self.sent, came))


@dataclass(frozen=True)
class PendingSparseGradients:
    """Entries of gradients under way to the members that the bags were sent to."""

    pending: PendingSparse
    hop: SparseHop
    bags: torch.Tensor
    sent: torch.Tensor  # the places of the entries that this rank sent forward
    length: int  # of the whole message

    def wait(self) -> tuple[list[torch.Tensor], list[int]]:
        """(bags, D) per fused table, zero where nothing was sent, forward or back; the members that raised the flag."""
        values, _, flagged = self.pending.wait()
        message = values.new_zeros(self.length).scatter_(0, self.sent, values)
        return self.hop.packing.separate(message, self.bags, self.hop.widths), flagged
