"""Where everything lies: which fused table, at which row, holds which rectangle, and which slots a rank serves.

All rectangles of one (width, dtype, tier) on a rank lie one under the other in one fused table. A slot is one
column slice of one feature: what a sample's owner asks for. Slots are ordered by fused table, so that ids and
vectors of one fused table are contiguous in a message. Pure arithmetic on the plan, the same on every rank.

Legend: S slots, W ranks, B samples of a rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dlrmx.plan.shards import Plan, Rectangle, Strip, TablePlan
from dlrmx.recipe.schema import Feature

FusedKey = tuple[int, str, str]  # (width in columns, dtype, tier)


@dataclass(frozen=True)
class Placed:
    """A rectangle and the row of its rank's fused table where it begins."""

    rectangle: Rectangle
    base: int


Placement = tuple[tuple[tuple[Placed, ...], ...], ...]  # [rank][fused] -> rectangles, top to bottom


@dataclass(frozen=True)
class Slot:
    """One column slice of one feature's table, and where its rows begin on each of the strip's ranks."""

    feature: int
    table: str
    strip: Strip
    fused: int  # index into Layout.fused
    weighted: bool
    bases: tuple[int, ...]  # fused row of the first row that rank first_rank + k holds; 0 where it holds none


@dataclass(frozen=True)
class Layout:
    """The plan as one world sees it; replicated (data_parallel) tables are not in it."""

    world: int
    fused: tuple[FusedKey, ...]
    slots: tuple[Slot, ...]
    placed: Placement

    def fused_rows(self, rank: int, fused: int) -> int:
        """Rows of one fused table of one rank."""
        return sum(placed.rectangle.rows for placed in self.placed[rank][fused])

    def slot_range(self, fused: int) -> tuple[int, int]:
        """[first, last) slot of one fused table; slots are ordered by it."""
        first = sum(slot.fused < fused for slot in self.slots)
        return first, first + sum(slot.fused == fused for slot in self.slots)

    def served(self, rank: int) -> tuple[int, ...]:
        """The slots of which `rank` holds at least one row, in slot order."""
        held = {(p.rectangle.table, p.rectangle.col_start) for group in self.placed[rank] for p in group}
        return tuple(i for i, slot in enumerate(self.slots) if (slot.table, slot.strip.col_start) in held)


def make_layout(plan: Plan, features: Mapping[str, Feature]) -> Layout:
    """Lay out the sharded tables of `plan` for `features`, in recipe order."""
    sharded = {name: table for name, table in plan.tables.items() if table.kind != "data_parallel"}
    assert all((s.row_start, s.row_end) == (0, t.rows) for t in sharded.values() for s in t.strips)
    fused = tuple(sorted({_key(table, strip) for table in sharded.values() for strip in table.strips}))
    placed = _place(sharded, fused, plan.world)
    bases = {(p.rectangle.table, p.rectangle.col_start, rank): p.base
             for rank, groups in enumerate(placed) for group in groups for p in group}  # fmt: skip

    def slot(index: int, feature: Feature, strip: Strip) -> Slot:
        ranks = range(strip.first_rank, strip.first_rank + strip.num_ranks)
        rows = tuple(bases.get((feature.table, strip.col_start, rank), 0) for rank in ranks)
        key = fused.index(_key(sharded[feature.table], strip))
        return Slot(index, feature.table, strip, key, feature.weights is not None, rows)

    slots = [
        slot(index, feature, strip)
        for index, feature in enumerate(features.values())
        if feature.table in sharded
        for strip in sharded[feature.table].strips
    ]
    return Layout(plan.world, fused, tuple(sorted(slots, key=lambda slot: slot.fused)), placed)


def _key(table: TablePlan, strip: Strip) -> FusedKey:
    return strip.col_end - strip.col_start, table.dtype, strip.tier


def _place(tables: Mapping[str, TablePlan], fused: tuple[FusedKey, ...], world: int) -> Placement:
    """Stack the rectangles of each rank and fused table, in table and strip order."""
    stacks: list[list[list[Placed]]] = [[[] for _ in fused] for _ in range(world)]
    heights = [[0] * len(fused) for _ in range(world)]
    for name, table in tables.items():
        for strip in table.strips:
            key = fused.index(_key(table, strip))
            for rectangle in strip.rectangles(name):
                stacks[rectangle.rank][key].append(Placed(rectangle, heights[rectangle.rank][key]))
                heights[rectangle.rank][key] += rectangle.rows
    return tuple(tuple(tuple(stack) for stack in rank) for rank in stacks)
