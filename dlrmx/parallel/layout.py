"""Where everything lies: which fused table, at which row, holds which rectangle, and which slots there are.

All rectangles of one (width, dtype, tier, route) on a rank lie one under the other in one fused table. A slot is one
strip of one feature's table, mostly a column slice: what a sample's owner asks for. Slots are ordered by fused table,
so that ids and vectors of one fused table are contiguous in a message, and then by rank, so that vectors of tables that
are not cut by rows come in the order in which bags are numbered. Pure arithmetic on the plan, the same on every rank.

Legend: S slots, W ranks, B samples of a rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dlrmx.plan.shards import Plan, Rectangle, Strip, TablePlan
from dlrmx.recipe.schema import Feature


class FusedKey(NamedTuple):
    """What rectangles must share to lie in one fused table."""

    width: int  # columns
    dtype: str
    tier: str
    route: str


@dataclass(frozen=True)
class Placed:
    """A rectangle, the row of its rank's fused table where it begins, and the part of its rows that is cached."""

    rectangle: Rectangle
    base: int
    cache_ratio: float


Placement = tuple[tuple[tuple[Placed, ...], ...], ...]  # [rank][fused] -> rectangles, top to bottom


@dataclass(frozen=True)
class Slot:
    """One strip of one feature's table, and where its rows begin on each of the strip's ranks."""

    feature: int
    table: str
    table_rows: int
    strip: Strip
    fused: int  # index into Layout.fused
    weighted: bool
    bases: tuple[int, ...]  # fused row of the first row that rank first_rank + k holds; 0 where it holds none


@dataclass(frozen=True)
class Layout:
    """The plan as one world sees it; replicated (data_parallel) tables are not in it."""

    world: int
    ranks_per_node: int
    fused: tuple[FusedKey, ...]
    slots: tuple[Slot, ...]
    placed: Placement

    def fused_rows(self, rank: int, fused: int) -> int:
        """Rows of one fused table of one rank."""
        return sum(placed.rectangle.rows for placed in self.placed[rank][fused])

    def cache_ratio(self, rank: int, fused: int) -> float:
        """The part of one fused table's rows that device memory is to hold: its rectangles' shares together."""
        cached = sum(placed.rectangle.rows * placed.cache_ratio for placed in self.placed[rank][fused])
        return cached / max(1, self.fused_rows(rank, fused))

    def holders(self, slot: int) -> list[int]:
        """The ranks that hold at least one row of a slot."""
        strip = self.slots[slot].strip
        cuts = strip.row_cuts()
        return [strip.first_rank + k for k in range(strip.num_ranks) if cuts[k] < cuts[k + 1]]


def make_layout(plan: Plan, features: Mapping[str, Feature]) -> Layout:
    """Lay out the sharded tables of `plan` for `features`, in recipe order."""
    sharded = {name: table for name, table in plan.tables.items() if table.kind != "data_parallel"}
    fused = tuple(sorted({_key(table, strip) for table in sharded.values() for strip in table.strips}))
    placed = _place(sharded, fused, plan.world)
    bases = {p.rectangle: p.base for groups in placed for group in groups for p in group}

    def slot(index: int, feature: Feature, strip: Strip) -> Slot:
        held = {part.rank: bases[part] for part in strip.rectangles(feature.table)}
        rows = tuple(held.get(strip.first_rank + part, 0) for part in range(strip.num_ranks))
        key = fused.index(_key(sharded[feature.table], strip))
        return Slot(index, feature.table, sharded[feature.table].rows, strip, key, feature.weights is not None, rows)

    slots = [
        slot(index, feature, strip)
        for index, feature in enumerate(features.values())
        if feature.table in sharded
        for strip in sharded[feature.table].strips
    ]
    ordered = tuple(sorted(slots, key=lambda slot: (slot.fused, slot.strip.first_rank)))
    return Layout(plan.world, plan.ranks_per_node, fused, ordered, placed)


def _key(table: TablePlan, strip: Strip) -> FusedKey:
    return FusedKey(strip.col_end - strip.col_start, table.dtype, strip.tier, table.route)


def _place(tables: Mapping[str, TablePlan], fused: tuple[FusedKey, ...], world: int) -> Placement:
    """Stack the rectangles of each rank and fused table, in table and strip order."""
    stacks: list[list[list[Placed]]] = [[[] for _ in fused] for _ in range(world)]
    heights = [[0] * len(fused) for _ in range(world)]
    for name, table in tables.items():
        for strip in table.strips:
            key = fused.index(_key(table, strip))
            for part in strip.rectangles(name):
                stacks[part.rank][key].append(Placed(part, heights[part.rank][key], strip.cache_ratio))
                heights[part.rank][key] += part.rows
    return tuple(tuple(tuple(stack) for stack in rank) for rank in stacks)
