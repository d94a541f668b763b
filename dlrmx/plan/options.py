"""What a plan is asked for, and every form that each table may take with what it costs.

Legend: T tables, F forms.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dlrmx.errors import InputError, Problem
from dlrmx.plan.facts import Facts
from dlrmx.plan.forms import COLUMN_STEP, SLICED, Form, allowed_forms, enumerate_forms, node_ranks
from dlrmx.plan.memory import dense_bytes, pipeline_bytes
from dlrmx.plan.pieces import (
    DEVICE_BYTES,
    HBM,
    HOST_BYTES,
    OURS,
    STAGES,
    Column,
    Pieces,
    Style,
    all_reduce_bytes,
    all_reduce_seconds,
    costs,
    replicas,
)
from dlrmx.plan.topology import Topology
from dlrmx.plan.workload import Bools, Floats, Ints, Workload, read_workload
from dlrmx.recipe.schema import Recipe

OWNER_SECONDS = [Column.OWNER_IDS, Column.OWNER_VECTORS]


@dataclass(frozen=True)
class Ask:
    """What a plan is asked for: the recipe, on the ranks of a topology."""

    recipe: Recipe
    topology: Topology
    facts: Facts | None = None
    style: Style = OURS

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
        world = self.topology.world
        return sum(dense_bytes(self.recipe, world)) + pipeline_bytes(self.recipe, world, ids)

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
    if problems := [*_column_problems(recipe), *_tier_problems(recipe, topology)]:
        raise InputError(problems)
    workload = ask.workload
    forms = enumerate_forms(recipe, topology, host=host, bands=bands)
    allowed = allowed_forms(forms, recipe, topology, host=host)
    used = np.flatnonzero(allowed.any(axis=1))
    forms, allowed = [forms[index] for index in used], allowed[used]
    numbers = np.full((8, len(forms), len(recipe.tables)), np.inf)
    for index, form in enumerate(forms):
        may = np.flatnonzero(allowed[index])
        numbers[:, index, may] = _form_costs(form, may, ask, workload)
    total_s, largest_s, total_bytes, largest_bytes, total_host_bytes, largest_host_bytes, piece_s, piece_bytes = numbers
    return Options(
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


def _form_costs(form: Form, tables: Ints, ask: Ask, workload: Workload) -> Floats:
    """The numbers of each table in this form, in the order of Options. (8, T)"""
    world, optimizer = ask.topology.world, ask.recipe.optimizer.sparse.kind
    if form.kind == "data_parallel":
        found = replicas(workload, ask.topology, optimizer)[tables]
        reduced = all_reduce_seconds(all_reduce_bytes(workload)[tables], ask.topology)
        seconds = found[:, STAGES].sum(axis=1) + reduced
        device = found[:, DEVICE_BYTES].sum(axis=1)
        return np.stack([seconds * world, seconds, device * world, device, *np.zeros((4, len(tables)))])
    ranks = form.ranks(ask.topology)
    rows, steps = workload.rows[tables], workload.dim[tables] // COLUMN_STEP
    found = np.zeros((len(tables), len(Column)))
    for share, tier, ratio in ((form.band, HBM, 0.0), (1 - form.band, form.tier, form.cache_ratio)):
        if share:
            found += costs(
                _alike(form, tables, rows * share, tier, ratio, ask, workload),
                workload,
                ask.topology,
                optimizer,
                ask.style,
            )
    # The mean piece's costs, and how much the largest is larger than it.
    pieces = ranks * form.slices
    more = np.ceil(rows / ranks) * ranks / rows * np.ceil(steps / form.slices) * form.slices / steps
    owner_s = found[:, OWNER_SECONDS].sum(axis=1) * pieces
    owner_bytes = found[:, Column.OWNER_BYTES] * pieces
    seconds, device = found[:, STAGES].sum(axis=1), found[:, DEVICE_BYTES].sum(axis=1)
    host = found[:, HOST_BYTES].sum(axis=1)
    return np.stack(
        [
            seconds * pieces + owner_s * world,
            seconds * more + owner_s,
            device * pieces + owner_bytes * world,
            device * more + owner_bytes,
            host * pieces,
            host * more,
            seconds * more,
            device * more,
        ]
    )


def _alike(form: Form, tables: Ints, rows: Floats, tier: int, ratio: float, ask: Ask, workload: Workload) -> Pieces:
    """One piece of mean size for each table."""
    ranks, node = form.ranks(ask.topology), min(form.ranks(ask.topology), node_ranks(ask.topology))
    count = len(tables)
    return Pieces(
        tables,
        rows / ranks,
        workload.dim[tables] / form.slices,
        np.full(count, tier),
        np.full(count, ratio),
        rows * node / ranks if form.route == "by_node" else np.zeros(count),
        np.full(count, float(node)),
    )


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
