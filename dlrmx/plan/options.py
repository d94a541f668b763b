"""What a plan is asked for, and every form that each table may take with what it costs.

Legend: T tables, F forms.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dlrmx.errors import InputError, Problem
from dlrmx.plan.facts import Facts
from dlrmx.plan.forms import COLUMN_STEP, ROWS_CUT, SLICED, Form, allowed_forms, enumerate_forms, node_ranks
from dlrmx.plan.memory import HEAP_TIMES, dense_bytes, pipeline_bytes, routing_bytes
from dlrmx.plan.pieces import (
    DEVICE_BYTES,
    HBM,
    HOST_BYTES,
    STAGES,
    STRAIGHT_TIMES,
    Column,
    Pieces,
    all_reduce_bytes,
    costs,
    replicas,
)
from dlrmx.plan.rates import all_reduce_seconds
from dlrmx.plan.style import Style, style_of
from dlrmx.plan.topology import Topology
from dlrmx.plan.workload import Bools, Floats, Ints, Workload, read_workload
from dlrmx.recipe.schema import Recipe

BLOCK = 100_000  # pairs of table and form that are costed at once
OWNER_SECONDS = [Column.OWNER_IDS, Column.OWNER_VECTORS]


@dataclass(frozen=True)
class Ask:
    """What a plan is asked for: the recipe, on the ranks of a topology."""

    recipe: Recipe
    topology: Topology
    facts: Facts | None = None
    asked_style: Style | None = None

    @cached_property
    def style(self) -> Style:
        """How vectors travel: as asked, else as ours do."""
        return self.asked_style or style_of(self.recipe)

    @property
    def usable_bytes(self) -> int:
        """Bytes of a rank's device that a plan may fill."""
        return int(self.topology.hbm_bytes * (1 - self.recipe.sharding.reserve))

    @property
    def usable_host_bytes(self) -> int:
        """Bytes of a rank's share of the host's memory that a plan may fill."""
        return int(self.topology.ddr_bytes * (1 - self.recipe.sharding.reserve))

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes that each rank spends whatever the plan: the dense part, and batches read ahead."""
        ids = float(self.workload.ids.sum()) / self.workload.batch
        world, device = self.topology.world, self.topology.device
        dense, activations = dense_bytes(self.recipe, world, self.topology.mapped_ranks)
        busiest = max(activations, routing_bytes(self.recipe, world, ids))
        return dense + int(HEAP_TIMES[device] * (busiest + pipeline_bytes(self.recipe, world, ids, device)))

    @cached_property
    def workload(self) -> Workload:
        """What a step asks of each table."""
        return read_workload(self.recipe, self.facts)


@dataclass(frozen=True)
class Options:
    """Every form of every table, costed. Arrays are (F, T); a form that a table may not take costs infinitely much.

    Seconds and bytes of one step: over all ranks ("total"), and on the rank that has most of them ("largest").
    """

    ask: Ask
    workload: Workload
    forms: tuple[Form, ...]
    allowed: Bools
    total_s: Floats
    largest_s: Floats
    total_bytes: Floats
    largest_bytes: Floats
    total_host_bytes: Floats
    largest_host_bytes: Floats
    piece_s: Floats  # of the largest, what only its holder spends
    piece_bytes: Floats
    free_bytes: int  # on each rank, before any table

    def fitting(self) -> Bools:
        """Forms whose largest part fits a rank that holds nothing else. (F, T)"""
        host = self.largest_host_bytes <= self.ask.usable_host_bytes
        return self.allowed & (self.largest_bytes <= self.free_bytes) & host


def enumerate_options(ask: Ask, *, host: bool = False, bands: bool = False) -> Options:
    """All tables with all forms. `host`: in the host's memory, too. Raises InputError for impossible constraints."""
    recipe, topology = ask.recipe, ask.topology
    if problems := [*_column_problems(recipe), *_tier_problems(recipe, topology), *_route_problems(recipe, topology)]:
        raise InputError(problems)
    workload = ask.workload
    forms = enumerate_forms(recipe, topology, host=host, bands=bands)
    allowed = allowed_forms(forms, recipe, topology, host=host)
    used = np.flatnonzero(allowed.any(axis=1))
    forms, allowed = [forms[index] for index in used], allowed[used]
    numbers = np.full((8, len(forms), len(recipe.tables)), np.inf)
    for block in np.array_split(np.arange(len(forms)), -(-len(forms) * len(recipe.tables) // BLOCK)):
        pairs = _Pairs(ask, workload, forms, *np.nonzero(allowed & np.isin(np.arange(len(forms)), block)[:, None]))
        numbers[:, pairs.form, pairs.table] = pairs.numbers()
    total_s, largest_s, total_bytes, largest_bytes, total_host_bytes, largest_host_bytes, piece_s, piece_bytes = numbers
    found = Options(
        ask=ask,
        workload=workload,
        forms=tuple(forms),
        allowed=allowed,
        total_s=total_s,
        largest_s=largest_s,
        total_bytes=total_bytes,
        largest_bytes=largest_bytes,
        total_host_bytes=total_host_bytes,
        largest_host_bytes=largest_host_bytes,
        piece_s=piece_s,
        piece_bytes=piece_bytes,
        free_bytes=ask.usable_bytes - ask.fixed_bytes,
    )
    return _dealt(found) if (~found.fitting()[_whole(found)].any(axis=0)).any() else found


def _whole(options: Options) -> Bools:
    """Forms in which each id goes to one rank, or to none. (F,)"""
    return np.array([form.ranks(options.ask.topology) == 1 or form.kind == "data_parallel" for form in options.forms])


def _dealt(options: Options) -> Options:
    """As it is where a table has to be cut by rows: then the ids of all tables are dealt one by one (`strip_costs`)."""
    ask, workload = options.ask, options.workload
    owner = -(-workload.batch // ask.topology.world) / workload.batch
    more_s = (1 - STRAIGHT_TIMES) * workload.ids * owner * ask.topology.id_s
    straight = [
        form.slices * (form.ranks(ask.topology) == 1 and form.kind != "data_parallel" and not form.band)
        for form in options.forms
    ]
    each_s = np.array(straight, dtype=float)[:, None] * more_s
    return replace(options, total_s=options.total_s + each_s * ask.topology.world, largest_s=options.largest_s + each_s)


@dataclass(frozen=True)
class _Pairs:
    """Tables, each in a form. Legend: P pairs."""

    ask: Ask
    workload: Workload
    forms: list[Form]
    form: Ints  # (P,)
    table: Ints  # (P,)

    def numbers(self) -> Floats:
        """What each pair costs, in the order of Options. (8, P)"""
        copied = np.array([form.kind == "data_parallel" for form in self.forms])[self.form]
        found = np.zeros((8, len(self.form)))
        found[:, copied] = self._replicas(self.table[copied])
        cut = _Pairs(self.ask, self.workload, self.forms, self.form[~copied], self.table[~copied])
        found[:, ~copied] = cut._cut()
        return found

    def _replicas(self, tables: Ints) -> Floats:
        topology, optimizer = self.ask.topology, self.ask.recipe.optimizer.sparse.kind
        found = replicas(self.workload, topology, optimizer)[tables]
        seconds = found[:, STAGES].sum(axis=1)
        seconds += all_reduce_seconds(all_reduce_bytes(self.workload)[tables], topology, self.ask.style)
        device = found[:, DEVICE_BYTES].sum(axis=1)
        world = topology.world
        return np.stack([seconds * world, seconds, device * world, device, *np.zeros((4, len(tables)))])

    def _of_form(self, attribute: str) -> Floats:
        return np.array([getattr(form, attribute) for form in self.forms], dtype=float)[self.form]

    def _cut(self) -> Floats:
        """By the costs of the mean piece, and how much the largest is larger than it."""
        topology, workload = self.ask.topology, self.workload
        band, slices = self._of_form("band"), self._of_form("slices")
        ranks = np.array([float(form.ranks(topology)) for form in self.forms])[self.form]
        rows, steps = workload.rows[self.table], workload.dim[self.table] // COLUMN_STEP
        found = self._pieces_cost(rows * (1 - band), ranks, slices, self._of_form("tier"), self._of_form("cache_ratio"))
        if band.any():
            zeros = np.zeros(len(band))
            found += self._pieces_cost(rows * band, ranks, slices, zeros + HBM, zeros) * (band > 0)[:, None]
        pieces = ranks * slices
        more = np.ceil(rows / ranks) * ranks / rows * np.ceil(steps / slices) * slices / steps
        owner_s = found[:, OWNER_SECONDS].sum(axis=1) * pieces
        owner_bytes = found[:, Column.OWNER_BYTES] * pieces
        seconds, device = found[:, STAGES].sum(axis=1), found[:, DEVICE_BYTES].sum(axis=1)
        host = found[:, HOST_BYTES].sum(axis=1)
        return np.stack(
            [
                seconds * pieces + owner_s * topology.world,
                seconds * more + owner_s,
                device * pieces + owner_bytes * topology.world,
                device * more + owner_bytes,
                host * pieces,
                host * more,
                seconds * more,
                device * more,
            ]
        )

    def _pieces_cost(self, rows: Floats, ranks: Floats, slices: Floats, tier: Floats, ratio: Floats) -> Floats:
        """The costs of one piece of mean size of each pair. (P, C)"""
        topology = self.ask.topology
        by_node = np.array([form.route == "by_node" for form in self.forms])[self.form]
        node = np.minimum(ranks, node_ranks(topology))
        pieces = Pieces(
            self.table,
            rows / ranks,
            self.workload.dim[self.table] / slices,
            tier.astype(np.int64),
            ratio,
            np.where(by_node, rows * node / ranks, 0.0),
            node,
        )
        return costs(pieces, self.workload, topology, self.ask.recipe.optimizer.sparse.kind, self.ask.style)


def _column_problems(recipe: Recipe) -> list[Problem]:
    """What column slices constraints ask for that a table's dim does not allow."""
    found = []
    for name, entry in recipe.sharding.tables.items():
        dim, types = recipe.tables[name].dim, set(entry.types or ())
        most = dim // COLUMN_STEP
        if types and types <= set(SLICED) and most == 1:
            key, what = (
                "types",
                f"column slices cannot cut table '{name}': dim {dim} is one step of {COLUMN_STEP} columns",
            )
            hint = f"take table_wise or row_wise, or a dim of at least {2 * COLUMN_STEP}"
        elif types & set(SLICED) and (entry.slices or 0) > most:
            key, what = "slices", f"{entry.slices} column slices of table '{name}': dim {dim} allows at most {most}"
            hint = f"slices are multiples of {COLUMN_STEP} columns; take at most {most}"
        else:
            continue
        found.append(Problem(what, key=f"sharding.tables.{name}.{key}", hint=hint))
    return found


def _tier_problems(recipe: Recipe, topology: Topology) -> list[Problem]:
    """Tiers that constraints ask for and ranks do not have."""
    if topology.ddr_bytes:
        return []
    where = "a processor" if topology.device == "cpu" else "these devices"
    return [
        Problem(
            f"table '{name}' cannot lie in {entry.tier}: {where} has no other memory than hbm",
            key=f"sharding.tables.{name}.tier",
            hint="take it out",
        )
        for name, entry in recipe.sharding.tables.items()
        if entry.tier not in (None, "hbm")
    ]


def _route_problems(recipe: Recipe, topology: Topology) -> list[Problem]:
    """Routes by node that constraints ask for, of tables that may only be cut by rows, where no node has to be left."""
    if topology.nodes > 1 and node_ranks(topology) > 1:
        return []
    where = "there is one node" if topology.nodes == 1 else "each node has one rank"
    return [
        Problem(
            f"table '{name}' cannot be routed by_node: {where}", key=f"sharding.tables.{name}.route", hint="take it out"
        )
        for name, entry in recipe.sharding.tables.items()
        if entry.route == "by_node" and entry.types and set(entry.types) <= set(ROWS_CUT)
    ]
