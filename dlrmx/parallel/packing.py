"""Packing: how the rows of several fused tables lie in one message, in (member, fused table, slot, bag) order.

Legend: S slots and M members of a hop, D width of a fused table, m touched (bag, member) pairs.
"""

from collections.abc import Sequence

import torch

from dlrmx.parallel.hops import Hop


class Packing:
    """Joins and separates messages; all sizes follow from touched bags by member and slot, (M, S) on the CPU."""

    def __init__(self, hop: Hop) -> None:
        self.ranges = hop.ranges
        self._members = len(hop.members)

    def rows(self, bags: torch.Tensor) -> torch.Tensor:
        """Touched bags by member and fused table, (M, fused tables)."""
        columns = [bags[:, first:last].sum(1) for first, last in self.ranges]
        return torch.stack(columns, dim=1) if columns else bags.new_zeros(self._members, 0)

    def sizes(self, bags: torch.Tensor, widths: Sequence[int]) -> list[int]:
        """Elements of all vectors, by member; of one vector, by fused table: `widths`."""
        sizes: list[int] = (self.rows(bags) * torch.tensor(widths, dtype=torch.int64)).sum(1).tolist()
        return sizes

    def part(self, flat: torch.Tensor, counts: torch.Tensor, fused: int) -> torch.Tensor:
        """The elements of one fused table of a tensor in (member, slot) order; counts (M, S) elements."""
        if len(self.ranges) == 1:
            return flat
        first, last = self.ranges[fused]
        sizes = torch.stack([counts[:, :first].sum(1), counts[:, first:last].sum(1), counts[:, last:].sum(1)], dim=1)
        return torch.cat(flat.split(sizes.view(-1).tolist())[1::3])

    def positions(self, positions: torch.Tensor, bags: torch.Tensor, leaf_rows: Sequence[int]) -> list[torch.Tensor]:
        """Per fused table: the row of its (leaf_rows, D) leaf that each touched bag adds to."""
        before = [sum(leaf_rows[:index]) for index in range(len(leaf_rows))]
        return [self.part(positions, bags, index) - start for index, start in enumerate(before)]

    def add_up(
        self, vectors: Sequence[torch.Tensor], positions: torch.Tensor, bags: torch.Tensor, leaf_rows: Sequence[int]
    ) -> list[torch.Tensor]:
        """Add (bags, D) vectors of all members into the bags of (leaf_rows, D) leaves; untouched bags are zero."""
        return [
            tensor.new_zeros(count, tensor.shape[1]).index_add_(0, rows, tensor)
            for tensor, rows, count in zip(vectors, self.positions(positions, bags, leaf_rows), leaf_rows, strict=True)
        ]

    def join(
        self, tables: Sequence[torch.Tensor], bags: torch.Tensor, dtype: torch.dtype, last: torch.Tensor | None = None
    ) -> torch.Tensor:
        """One flat message of (rows, width) tensors of `dtype`, one per fused table; `last` ends each member's part."""
        rows = self.rows(bags)
        parts = [table.split(rows[:, index].tolist()) for index, table in enumerate(tables)]
        ends = [] if last is None else [last]
        pieces = [piece for m in range(self._members) for piece in (*(p[m].reshape(-1) for p in parts), *ends)]
        return torch.cat(pieces) if pieces else torch.empty(0, dtype=dtype)

    def separate(self, message: torch.Tensor, bags: torch.Tensor, widths: Sequence[int]) -> list[torch.Tensor]:
        """The inverse of `join`: one (rows, width) tensor per fused table, in (member, slot, bag) order."""
        views = message.split((self.rows(bags) * torch.tensor(widths, dtype=torch.int64)).view(-1).tolist())
        return [torch.cat(views[index :: len(widths)]).view(-1, width) for index, width in enumerate(widths)]
