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
        rows = self.positions(positions, bags, leaf_rows)
        return [_added(tensor, of, count) for tensor, of, count in zip(vectors, rows, leaf_rows, strict=True)]

    def take(
        self, leaves: Sequence[torch.Tensor], positions: torch.Tensor, bags: torch.Tensor, leaf_rows: Sequence[int]
    ) -> list[torch.Tensor]:
        """For each touched bag its row of the (leaf_rows, D) leaves; a leaf itself where these are all its rows."""
        rows = self.positions(positions, bags, leaf_rows)
        return [
            leaf if _is_range(of, len(leaf)) else leaf.index_select(0, of)
            for leaf, of in zip(leaves, rows, strict=True)
        ]

    def join(self, tables: Sequence[torch.Tensor], bags: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """One flat message of (rows, width) tensors of `dtype`, one per fused table; of a single one it is a view."""
        if len(tables) == 1:
            return tables[0].reshape(-1)
        rows = self.rows(bags)
        parts = [table.split(rows[:, index].tolist()) for index, table in enumerate(tables)]
        pieces = [part[member].reshape(-1) for member in range(self._members) for part in parts]
        return torch.cat(pieces) if pieces else torch.empty(0, dtype=dtype)

    def separate(self, message: torch.Tensor, bags: torch.Tensor, widths: Sequence[int]) -> list[torch.Tensor]:
        """The inverse of `join`: one (rows, width) tensor per fused table, in (member, slot, bag) order."""
        if len(widths) == 1:
            return [message.view(-1, widths[0])]
        views = message.split((self.rows(bags) * torch.tensor(widths, dtype=torch.int64)).view(-1).tolist())
        return [torch.cat(views[index :: len(widths)]).view(-1, width) for index, width in enumerate(widths)]


def _added(vectors: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    """Add vectors (m, D) to the rows of (count, D) zeros: without any sum where each of them gets one vector."""
    if len(rows) == count:
        if _is_range(rows, count):
            return vectors
        source = torch.full_like(rows, -1)
        source[rows] = torch.arange(count, device=rows.device)
        if bool((source >= 0).all()):
            return vectors.index_select(0, source)
    return vectors.new_zeros(count, vectors.shape[1]).index_add_(0, rows, vectors)


def _is_range(rows: torch.Tensor, count: int) -> bool:
    return len(rows) == count and torch.equal(rows, torch.arange(count, device=rows.device))
