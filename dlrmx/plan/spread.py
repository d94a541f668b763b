"""Strips as arrays, and what they add up to on each rank: exactly, whatever the number of ranks.

Legend: S strips, C columns of a cost table, W ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from dlrmx.plan.memory import SparseKind
from dlrmx.plan.pieces import STRAIGHT_TIMES, TIERS, Column, Pieces, costs
from dlrmx.plan.shards import Plan
from dlrmx.plan.style import OURS, Style
from dlrmx.plan.topology import Topology
from dlrmx.plan.workload import Bools, Floats, Ints, Workload

BLOCK = 1 << 18  # elements of the matrices that deal strips to ranks


@dataclass(frozen=True)
class Strips:
    """Strips of many tables, as arrays of one length S; each is dealt evenly by rows to `ranks` ranks."""

    table: Ints
    rows: Ints
    cols: Ints
    ranks: Ints
    tier: Ints
    cache_ratio: Floats
    by_node: Bools

    def __len__(self) -> int:
        return len(self.table)

    def only(self, chosen: Ints) -> "Strips":
        """Some of the strips."""
        return Strips(*(getattr(self, field.name)[chosen] for field in fields(self)))


def strips_of(plan: Plan, workload: Workload) -> tuple[Strips, Ints]:
    """A plan's strips, in the workload's order of tables, and the first rank of each."""
    found: list[tuple[int, int, int, int, int, float, bool, int]] = []
    for index, name in enumerate(workload.names):
        table = plan.tables[name]
        by_node = table.route == "by_node"
        found += [
            (
                index,
                strip.row_end - strip.row_start,
                strip.col_end - strip.col_start,
                strip.num_ranks,
                TIERS.index(strip.tier),
                strip.cache_ratio,
                by_node,
                strip.first_rank,
            )
            for strip in table.strips
        ]
    return make_strips([strip[:7] for strip in found]), np.array([strip[7] for strip in found], dtype=np.int64)


def make_strips(rows: Sequence[tuple[int, int, int, int, int, float, bool]]) -> Strips:
    """Strips from (table, rows, columns, ranks, tier, cache ratio, by node)."""
    table, count, cols, ranks, tier = np.array([row[:5] for row in rows], dtype=np.int64).reshape(-1, 5).T
    ratio, by_node = np.array([row[5] for row in rows], dtype=float), np.array([row[6] for row in rows], dtype=bool)
    return Strips(table, count, cols, ranks, tier, ratio, by_node)


def strip_costs(
    strips: Strips, workload: Workload, topology: Topology, optimizer: SparseKind, style: Style = OURS
) -> tuple[Floats, Floats]:
    """What a strip costs a rank that gets the larger, and one that gets the smaller number of its rows. (S, C) each.

    One strip whose ids are dealt to several ranks one by one, and the ids of all strips are.
    """
    node = np.minimum(strips.ranks, topology.ranks_per_node)
    node_rows = np.where(strips.by_node, strips.rows * node / strips.ranks, 0.0)
    dealt = bool((strips.ranks > 1).any())

    def of(rows: Ints) -> Floats:
        pieces = Pieces(
            strips.table,
            rows.astype(float),
            strips.cols.astype(float),
            strips.tier,
            strips.cache_ratio,
            node_rows,
            node.astype(float),
        )
        found = costs(pieces, workload, topology, optimizer, style)
        found[rows == 0] = 0.0
        if dealt:
            found[strips.ranks == 1, Column.OWNER_IDS] /= STRAIGHT_TIMES
        return found

    fewer = strips.rows // strips.ranks
    more = -(-strips.rows // strips.ranks)
    larger = of(more)
    return larger, (of(fewer) if (fewer < more).any() else larger)


def on_ranks(strips: Strips, first_rank: Ints, larger: Floats, smaller: Floats, world: int) -> Floats:
    """The strips' costs by rank. (W, C)"""
    found = np.zeros((world, larger.shape[1]))
    alone = strips.ranks == 1
    np.add.at(found, first_rank[alone], larger[alone])
    shared = np.flatnonzero(~alone)
    for ranges in np.unique(np.stack([first_rank[shared], strips.ranks[shared]], axis=1), axis=0):
        here = shared[(first_rank[shared] == ranges[0]) & (strips.ranks[shared] == ranges[1])]
        found[ranges[0] : ranges[0] + ranges[1]] += smaller[here].sum(axis=0)
    uneven = shared[strips.rows[shared] % strips.ranks[shared] > 0]
    step = max(1, BLOCK // world)
    for begin in range(0, len(uneven), step):
        block = uneven[begin : begin + step]
        found += _gets_more(strips, first_rank, block, world).T @ (larger[block] - smaller[block])
    return found


def _gets_more(strips: Strips, first_rank: Ints, block: Ints, world: int) -> Floats:
    """1.0 where a rank gets the larger number of a strip's rows: the cuts are floor(k x rows / ranks). (S, W)"""
    place = np.arange(world) - first_rank[block, None]
    rows, ranks = strips.rows[block, None], strips.ranks[block, None]
    inside = (place >= 0) & (place < ranks)
    number = (place + 1) * rows // ranks - place * rows // ranks
    more: Floats = (inside & (number > rows // ranks)).astype(float)
    return more
