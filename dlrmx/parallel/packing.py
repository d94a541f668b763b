"""Packing: how the rows of several fused tables lie in one message, in (rank, fused table, slot, bag) order.

Legend: S slots, W ranks, D width of a fused table, m touched (bag, rectangle) pairs.
"""

from collections.abc import Sequence

import torch

from dlrmx.parallel.layout import Layout


class Packing:
    """Joins and separates messages; all sizes follow from touched bags by rank and slot, (W, S) on the CPU."""

    def __init__(self, layout: Layout) -> None:
        self.ranges = [layout.slot_range(index) for index in range(len(layout.fused))]
        self._widths = torch.tensor([width for width, _, _ in layout.fused], dtype=torch.int64)
        self._world = layout.world

    def rows(self, bags: torch.Tensor) -> torch.Tensor:
        """Touched bags by rank and fused table, (W, fused tables)."""
        columns = [bags[:, first:last].sum(1) for first, last in self.ranges]
        return torch.stack(columns, dim=1) if columns else bags.new_zeros(self._world, 0)

    def sizes(self, bags: torch.Tensor) -> list[int]:
        """Numbers of all vectors, by rank."""
        sizes: list[int] = (self.rows(bags) * self._widths).sum(1).tolist()
        return sizes

    def part(self, flat: torch.Tensor, counts: torch.Tensor, fused: int) -> torch.Tensor:
        """The elements of one fused table of a tensor in (rank, slot) order; counts (W, S) elements."""
        if len(self.ranges) == 1:
            return flat
        first, last = self.ranges[fused]
        sizes = torch.stack([counts[:, :first].sum(1), counts[:, first:last].sum(1), counts[:, last:].sum(1)], dim=1)
        return torch.cat(flat.split(sizes.view(-1).tolist())[1::3])

    def positions(self, positions: torch.Tensor, bags: torch.Tensor, batch: int) -> list[torch.Tensor]:
        """Per fused table: the row of its (slots * batch, D) leaf that each touched bag adds to."""
        return [self.part(positions, bags, index) - first * batch for index, (first, _) in enumerate(self.ranges)]

    def join(
        self, tables: Sequence[torch.Tensor], bags: torch.Tensor, last: torch.Tensor | None = None
    ) -> torch.Tensor:
        """One flat message of (rows, D) tensors, one per fused table; `last` ends each rank's part."""
        rows = self.rows(bags)
        parts = [table.split(rows[:, index].tolist()) for index, table in enumerate(tables)]
        ends = [] if last is None else [last]
        pieces = [piece for r in range(self._world) for piece in (*(p[r].reshape(-1) for p in parts), *ends)]
        return torch.cat(pieces) if pieces else torch.empty(0)

    def separate(self, message: torch.Tensor, bags: torch.Tensor) -> list[torch.Tensor]:
        """The inverse of `join`: one (rows, D) tensor per fused table, in (rank, slot, bag) order."""
        views = message.split((self.rows(bags) * self._widths).view(-1).tolist())
        count = len(self.ranges)
        return [torch.cat(views[index::count]).view(-1, int(self._widths[index])) for index in range(count)]
