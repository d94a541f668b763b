"""Puts cut tables on ranks: what stands on all ranks first, then the longest piece to the least loaded rank."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlrmx.plan.memory import rectangle_memory, replica_memory, sender_memory
from dlrmx.plan.options import Ask, Demand
from dlrmx.plan.shards import Kind, Strip, TablePlan


@dataclass(frozen=True)
class Overflow:
    """The first piece that found no room: what it needs and the most that any (or that its) rank had left."""

    table: str
    kind: Kind
    needed_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Piece:
    """A strip that one rank must take whole."""

    demand: Demand
    cut: TablePlan
    index: int
    weight: float

    @property
    def strip(self) -> Strip:
        return self.cut.strips[self.index]


class Ranks:
    """Free bytes and load of each rank while a plan grows."""

    def __init__(self, world: int, free_bytes: int) -> None:
        self.free = [free_bytes] * world
        self.load = [0.0] * world

    def fits_everywhere(self, num_bytes: Sequence[int]) -> bool:
        return all(need <= free for need, free in zip(num_bytes, self.free, strict=True))

    def take(self, rank: int, num_bytes: int, load: float) -> None:
        self.free[rank] -= num_bytes
        self.load[rank] += load

    def least_loaded(self, num_bytes: int, *, not_on: set[int]) -> int | None:
        """The least loaded rank with room, preferably not one of `not_on`; the lowest of equals."""
        able = [rank for rank, free in enumerate(self.free) if num_bytes <= free]
        return min(able, key=lambda rank: (rank in not_on, self.load[rank], rank), default=None)


def place(
    demands: Sequence[Demand], cuts: Sequence[TablePlan], ask: Ask, *, free_bytes: int
) -> dict[str, TablePlan] | Overflow:
    """The tables with their ranks, or what does not fit into `free_bytes` on each rank.

    A piece's weight is its share of all stored bytes plus its share of all look-up cost.
    """
    ranks = Ranks(ask.world, free_bytes)
    all_bytes = sum(demand.stored_bytes for demand in demands)
    all_cost = sum(demand.lookup_cost for demand in demands) or 1.0
    pieces: list[Piece] = []
    by_size = sorted(zip(demands, cuts, strict=True), key=lambda pair: -pair[0].stored_bytes)
    for demand, table in by_size:
        weight = demand.stored_bytes / all_bytes + demand.lookup_cost / all_cost
        needs, shares = _on_each_rank(demand, table, ask)
        if not ranks.fits_everywhere(needs):
            return Overflow(demand.name, table.kind, max(needs), min(ranks.free))
        for rank in range(ask.world):
            ranks.take(rank, needs[rank], weight * shares[rank])
        if table.kind in ("table_wise", "column_wise"):
            pieces += [
                Piece(demand, table, index, weight * (strip.col_end - strip.col_start) / table.dim)
                for index, strip in enumerate(table.strips)
            ]
    placed = {demand.name: table for demand, table in zip(demands, cuts, strict=True)}
    return _place_pieces(pieces, ranks, placed, ask)


def _on_each_rank(demand: Demand, table: TablePlan, ask: Ask) -> tuple[list[int], list[float]]:
    """Bytes and share of the table on each rank that need no decision: all but strips of one rank."""
    world, batch, optimizer = ask.world, ask.recipe.train.batch, ask.recipe.optimizer.sparse.kind
    if table.kind == "data_parallel":
        # Every rank looks up its own samples only.
        return [replica_memory(table, optimizer).total_bytes] * world, [1 / world] * world
    sending = sender_memory(table, demand.pooling, local_batch=-(-batch // world))
    needs, shares = [sending.total_bytes] * world, [0.0] * world
    if table.kind == "row_wise":
        for part in table.rectangles(demand.name):
            memory = rectangle_memory(part, table, demand.pooling, batch=batch, optimizer=optimizer)
            needs[part.rank] += memory.total_bytes
            shares[part.rank] = part.rows / table.rows
    return needs, shares


def _place_pieces(
    pieces: list[Piece], ranks: Ranks, placed: dict[str, TablePlan], ask: Ask
) -> dict[str, TablePlan] | Overflow:
    """Longest processing time first. A table's column slices go to different ranks where possible."""
    batch, optimizer = ask.recipe.train.batch, ask.recipe.optimizer.sparse.kind
    taken: dict[str, set[int]] = {}
    for piece in sorted(pieces, key=lambda piece: -piece.weight):
        name = piece.demand.name
        (rectangle,) = piece.strip.rectangles(name)
        memory = rectangle_memory(rectangle, piece.cut, piece.demand.pooling, batch=batch, optimizer=optimizer)
        table, on = placed[name], taken.setdefault(name, set())
        rank = ranks.least_loaded(memory.total_bytes, not_on=on)
        if rank is None:
            return Overflow(name, table.kind, memory.total_bytes, max(ranks.free))
        ranks.take(rank, memory.total_bytes, piece.weight)
        on.add(rank)
        strips = list(table.strips)
        strips[piece.index] = replace(piece.strip, first_rank=rank)
        placed[name] = replace(table, strips=tuple(strips))
    return placed
