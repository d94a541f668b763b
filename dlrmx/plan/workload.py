"""What a step asks of each table, as arrays over tables: samples, ids, which rows they hit and how often.

Legend: T tables, F features, M cells of a table's skew; P parts of tables.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dlrmx.plan.facts import Facts, poolings
from dlrmx.plan.memory import DTYPE_BYTES, FP32_BYTES
from dlrmx.recipe.schema import Recipe, Synthetic

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CELLS = 48  # of a Zipf distribution's ranks, evenly spaced by logarithm
# Where neither facts nor recipe say how ids are spread: the exponent of the schema's synthetic data.
USUAL_ZIPF = 1.05


@dataclass(frozen=True)
class Workload:
    """All tables of a recipe and what one global batch asks of them. In the recipe's order."""

    names: tuple[str, ...]
    batch: int
    rows: Floats  # (T,)
    dim: Floats  # (T,)
    element_bytes: Floats  # (T,)
    pooling: Floats  # (F,) mean ids per bag
    first_feature: Ints  # (T,) where a table's features begin
    num_features: Ints  # (T,)
    cell_rows: Floats  # (T, M) rows in each cell of the table's rows, busiest first
    cell_share: Floats  # (T, M) share of the look-ups that fall into the cell

    @cached_property
    def ids(self) -> Floats:
        """Look-ups per global batch. (T,)"""
        return self.batch * self._over_features(np.arange(len(self.names)), self.pooling)

    @cached_property
    def bags(self) -> Floats:
        """Bags per global batch. (T,)"""
        return self.batch * self.num_features.astype(float)

    @cached_property
    def vector_bytes(self) -> float:
        """Of all bags' vectors of a global batch, in fp32."""
        return float(FP32_BYTES * (self.bags * self.dim).sum())

    @cached_property
    def is_mixed(self) -> bool:
        """Whether tables differ in width."""
        return len(np.unique(self.dim)) > 1

    @cached_property
    def one_hot(self) -> Floats:
        """1.0 where all bags of the table hold at most one id: they need no lengths. (T,)"""
        return (self.ids <= self.bags * (1 + 1e-9)).astype(float)

    @cached_property
    def distinct(self) -> Floats:
        """Different rows that a global batch is expected to meet. (T,)"""
        distinct: Floats = self._met.sum(axis=1)
        return distinct

    def touched(self, table: Ints, share: Floats) -> Floats:
        """Bags per global batch that hold an id of a part of the table with that share of its rows. (P,)

        Ids are permuted, so each falls there with probability `share`: of a bag of L, none does with (1 - share)^L.
        """
        if not (share < 1).any():
            return self.bags[table]
        each = np.log1p(-np.minimum(share, 1 - 1e-12))
        position = np.repeat(np.arange(len(table)), self.num_features[table])
        feature = _runs(self.first_feature[table], self.num_features[table])
        part = np.bincount(position, -np.expm1(self.pooling[feature] * each[position]), minlength=len(table))
        return np.where(share < 1, self.batch * part, self.bags[table])

    def missed(self, table: Ints, ratio: Floats) -> Floats:
        """Different rows of a global batch beyond the busiest part `ratio` of the table's rows. (P,)"""
        wanted = ratio * self.rows[table]
        before = np.cumsum(self.cell_rows[table], axis=1) - self.cell_rows[table]
        inside = np.clip((wanted[:, None] - before) / np.maximum(self.cell_rows[table], 1e-9), 0, 1)
        missed: Floats = ((1 - inside) * self._met[table]).sum(axis=1)
        return missed

    @cached_property
    def _met(self) -> Floats:
        """Different rows of each cell that a global batch meets. (T, M)"""
        rows = np.maximum(self.cell_rows, 1e-9)
        return rows * -np.expm1(-self.ids[:, None] * self.cell_share / rows) * (self.cell_rows > 0)

    def _over_features(self, table: Ints, value: Floats) -> Floats:
        position = np.repeat(np.arange(len(table)), self.num_features[table])
        feature = _runs(self.first_feature[table], self.num_features[table])
        return np.bincount(position, value[feature], minlength=len(table)).astype(float)


def read_workload(recipe: Recipe, facts: Facts | None) -> Workload:
    """The workload of a recipe, with the facts of its prepared data where there are any."""
    means = poolings(recipe, facts)
    tables = recipe.tables.values()
    rows = np.array([table.rows for table in tables], dtype=float)
    count = np.array([len(means[name]) for name in recipe.tables], dtype=np.int64)
    exponent = recipe.data.zipf if isinstance(recipe.data, Synthetic) else USUAL_ZIPF
    cell_rows, cell_share = _zipf_cells(rows, exponent)
    if facts is not None:
        _put_facts(recipe, facts, rows, cell_rows, cell_share)
    return Workload(
        names=tuple(recipe.tables),
        batch=recipe.train.batch,
        rows=rows,
        dim=np.array([table.dim for table in tables], dtype=float),
        element_bytes=np.array([DTYPE_BYTES[table.dtype] for table in tables], dtype=float),
        pooling=np.array([mean for name in recipe.tables for mean in means[name]], dtype=float),
        first_feature=np.cumsum(count) - count,
        num_features=count,
        cell_rows=cell_rows,
        cell_share=cell_share,
    )


def _runs(first: Ints, count: Ints) -> Ints:
    """first[0], first[0] + 1, ... (count[0] of them), first[1], ..."""
    ends = np.cumsum(count)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + count, count)


def _zipf_cells(rows: Floats, exponent: float) -> tuple[Floats, Floats]:
    """Rows and look-ups of cells of Zipf's ranks 1..rows: each cell's sum as an integral."""
    edges = np.exp(np.linspace(0.0, 1.0, CELLS + 1) * np.log(rows + 1)[:, None])  # 1 .. rows + 1
    cell_rows = np.diff(edges, axis=1)
    upto = np.log(edges) if exponent == 1 else edges ** (1 - exponent) / (1 - exponent)
    mass = np.diff(upto, axis=1)
    return cell_rows, mass / np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)


def _put_facts(recipe: Recipe, facts: Facts, rows: Floats, cell_rows: Floats, cell_share: Floats) -> None:
    """Replace the guess by what was counted: of a table with several features, of the one with most look-ups."""
    place = {name: index for index, name in enumerate(recipe.tables)}
    busiest: dict[int, float] = {}
    for name, feature in recipe.features.items():
        known, index = facts.features[name], place[feature.table]
        if not known.hot or known.mean_pooling <= busiest.get(index, 0.0):
            continue
        busiest[index] = known.mean_pooling
        points = np.array([[0.0, 0.0], *known.hot, [1.0, 1.0]])[: CELLS + 1]
        points[-1] = 1.0
        cell_rows[index], cell_share[index] = 0.0, 0.0
        cell_rows[index, : len(points) - 1] = np.diff(points[:, 0]) * rows[index]
        cell_share[index, : len(points) - 1] = np.diff(points[:, 1])
