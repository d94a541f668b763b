"""The forms that tables may take: how each is cut, in which tier it lies, how its sums travel.

Legend: T tables, F forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlrmx.plan.pieces import CACHING, HBM, TIERS, UVM
from dlrmx.plan.shards import Kind, Route, cut
from dlrmx.plan.topology import Topology
from dlrmx.plan.workload import Bools
from dlrmx.recipe.schema import Recipe, TableSharding

COLUMN_STEP = 4  # fbgemm's kernels want dims that are multiples of 4
SLICES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
CACHE_RATIOS = (0.02, 0.05, 0.1, 0.2, 0.4)
BANDS = 32  # a table may lie in device memory alone by so many parts of its rows
SLICED = ("column_wise", "grid")
ROWS_CUT = ("row_wise", "table_row_wise", "grid")


@dataclass(frozen=True)
class Form:
    """One way to cut a table.

    slices: of its columns. group: ranks of one node that share the rows of a slice (table_row_wise and grid). band:
    the part of its rows that lies in device memory whatever the tier.
    """

    kind: Kind
    slices: int = 1
    group: int = 1
    route: Route = "flat"
    tier: int = HBM
    cache_ratio: float = 0.0
    band: float = 0.0

    def ranks(self, topology: Topology) -> int:
        """Ranks that share the rows of one of its strips."""
        return topology.world if self.kind == "row_wise" else self.group

    def strips(self, rows: int, dim: int) -> list[tuple[int, int, int, int, int, float]]:
        """(row start, row end, column start, column end, tier, cache ratio) of each strip of a table."""
        steps = dim // COLUMN_STEP
        columns = [COLUMN_STEP * cut(steps, self.slices, k) for k in range(self.slices)] + [dim]
        border = round(rows * self.band)
        bands = [(0, border, HBM, 0.0)] if border else []
        bands += [(border, rows, self.tier, self.cache_ratio)] if border < rows else []
        return [
            (first, last, columns[k], columns[k + 1], tier, ratio)
            for k in range(self.slices)
            for first, last, tier, ratio in bands
        ]


def node_ranks(topology: Topology) -> int:
    """Ranks of a full node."""
    return min(topology.ranks_per_node, topology.world)


def enumerate_forms(recipe: Recipe, topology: Topology, *, host: bool, bands: bool) -> list[Form]:
    """Every form that some table may take. `host`: host memory, too; `bands`: tables that lie partly in each tier."""
    widest = max(table.dim for table in recipe.tables.values()) // COLUMN_STEP
    named = {entry.slices for entry in recipe.sharding.tables.values() if entry.slices}
    slices = sorted({number for number in {*SLICES, *named} if number <= widest})
    routes: tuple[Route, ...] = ("flat", "by_node") if topology.nodes > 1 and node_ranks(topology) > 1 else ("flat",)
    cuts = [Form("data_parallel"), Form("table_wise"), *(Form("column_wise", k) for k in slices)]
    cuts += [Form("row_wise", route=route) for route in routes]
    node = node_ranks(topology)
    groups = [group for group in range(2, node) if node % group == 0] + [node]
    cuts += [Form("table_row_wise", 1, group, route) for group in groups for route in routes]
    cuts += [Form("grid", k, node, route) for k in slices for route in routes]
    forms = list(cuts)
    for tier, ratio in _tiers(recipe, topology, host=host):
        lower = [replace(form, tier=tier, cache_ratio=ratio) for form in cuts if form.kind != "data_parallel"]
        forms += lower
        if bands:
            forms += [
                replace(form, band=part / BANDS)
                for form in lower
                if form.kind == "row_wise"
                for part in range(1, BANDS)
            ]
    return forms


def _tiers(recipe: Recipe, topology: Topology, *, host: bool) -> list[tuple[int, float]]:
    """Tiers below device memory that any table may take, with each cache ratio."""
    if not topology.ddr_bytes:
        return []
    named = [entry for entry in recipe.sharding.tables.values() if entry.tier not in (None, "hbm")]
    ratios = {entry.cache_ratio for entry in named if entry.cache_ratio is not None}
    if not host and not named:
        return []
    return [*((CACHING, ratio) for ratio in sorted({*CACHE_RATIOS, *ratios})), (UVM, 0.0)]


def allowed_forms(forms: Sequence[Form], recipe: Recipe, topology: Topology, *, host: bool) -> Bools:
    """Which form each table may take. (F, T)"""
    rows = np.array([table.rows for table in recipe.tables.values()])
    steps = np.array([table.dim for table in recipe.tables.values()]) // COLUMN_STEP
    sliced = recipe.optimizer.sparse.kind != "rowwise_adagrad" or recipe.sharding.split_sums
    usual = [_is_usual(form, topology, sliced=sliced) for form in forms]
    found = np.zeros((len(forms), len(rows)), dtype=bool)
    for index, form in enumerate(forms):
        if usual[index] and (form.tier == HBM or host):
            # Cut by rows where every rank gets one.
            found[index] = (form.slices <= steps) & (rows >= form.ranks(topology))
    for column, name in enumerate(recipe.tables):
        if name in recipe.sharding.tables:
            entry = recipe.sharding.tables[name]
            obeys = [
                (form.kind in entry.types if entry.types else is_usual) and _obeys(form, entry, host=host)
                for form, is_usual in zip(forms, usual, strict=True)
            ]
            found[:, column] = obeys & (np.array([form.slices for form in forms]) <= steps[column])
    return found


def _is_usual(form: Form, topology: Topology, *, sliced: bool) -> bool:
    """Whether a table without constraints may be cut so. A form that comes to the same as a simpler one is left out.

    Column slices keep row sums of their own under row-wise AdaGrad, which is another optimizer: only where allowed.
    """
    match form.kind:
        case "table_wise":
            return True
        case "data_parallel" | "row_wise":
            return topology.world > 1
        case "column_wise":
            return topology.world > 1 and sliced
        case "table_row_wise":
            return 1 < form.group < topology.world
        case "grid":
            return 1 < form.group < topology.world and sliced


def _obeys(form: Form, entry: TableSharding, *, host: bool) -> bool:
    """Whether a form has the slices, route and tier that a constraint asks for."""
    if form.kind in ROWS_CUT and entry.route not in (None, form.route):
        return False
    if form.kind in SLICED and entry.slices not in (None, form.slices):
        return False
    if entry.tier is None:
        return form.tier == HBM or host
    return TIERS[form.tier] == entry.tier and not form.band and entry.cache_ratio in (None, form.cache_ratio)
