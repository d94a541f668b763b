"""The plan's values: strips, rectangles and tables, and their JSON form.

A strip is a band of columns and rows of one table, cut evenly by rows over consecutive ranks: table-wise is one
strip on one rank, column-wise k strips of one rank each, row-wise one strip over all ranks, table-row-wise one
over a node's ranks, grid several of those. So a plan stays small whatever the number of ranks, and a rectangle
[row_start, row_end) x [col_start, col_end) is computed, never stored.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["table_wise", "row_wise", "column_wise", "data_parallel", "table_row_wise", "grid"]
Route = Literal["flat", "by_node"]
Tier = Literal["hbm", "uvm_caching", "uvm"]
VERSION = 2


def cut(total: int, parts: int, part: int) -> int:
    """Where part `part` of `total` things begins when they are dealt evenly to `parts`: floor(part * total / parts)."""
    return part * total // parts


@dataclass(frozen=True)
class Rectangle:
    """Rows [row_start, row_end) and columns [col_start, col_end) of one table, on one rank."""

    table: str
    row_start: int
    row_end: int
    col_start: int
    col_end: int
    rank: int
    tier: Tier

    @property
    def rows(self) -> int:
        return self.row_end - self.row_start

    @property
    def cols(self) -> int:
        return self.col_end - self.col_start


@dataclass(frozen=True)
class Strip:
    """Rows [row_start, row_end) x columns [col_start, col_end), dealt evenly by rows to `num_ranks` ranks.

    tier: where it lies on each; a "uvm_caching" one keeps the part `cache_ratio` of its rows in device memory.
    """

    row_start: int
    row_end: int
    col_start: int
    col_end: int
    first_rank: int
    num_ranks: int
    tier: Tier = "hbm"
    cache_ratio: float = 0.0

    def row_cuts(self) -> list[int]:
        """The num_ranks + 1 row boundaries; neighbours are equal where a rank gets no row."""
        rows = self.row_end - self.row_start
        return [self.row_start + cut(rows, self.num_ranks, k) for k in range(self.num_ranks + 1)]

    def rectangles(self, table: str) -> Iterator[Rectangle]:
        """One rectangle per rank that holds a row."""
        cuts = self.row_cuts()
        for k in range(self.num_ranks):
            if cuts[k] < cuts[k + 1]:
                yield Rectangle(
                    table, cuts[k], cuts[k + 1], self.col_start, self.col_end, self.first_rank + k, self.tier
                )


@dataclass(frozen=True)
class TablePlan:
    """How one table is cut. A data_parallel table has no strips: every rank holds all of it.

    route: whether the ranks that hold parts of a bag send their sums straight to its owner, or add them up inside
    their node first.
    """

    rows: int
    dim: int
    dtype: Literal["fp32", "fp16"]
    kind: Kind
    route: Route = "flat"
    strips: tuple[Strip, ...] = ()

    def rectangles(self, table: str) -> list[Rectangle]:
        """All rectangles of the table, in strip and rank order; none for data_parallel."""
        return [rectangle for strip in self.strips for rectangle in strip.rectangles(table)]


@dataclass(frozen=True)
class Plan:
    """Every table's cut over `world` ranks, `ranks_per_node` of them on each node (the last may have fewer).

    A pure function of recipe, data facts, topology and version.
    """

    world: int
    tables: dict[str, TablePlan]
    ranks_per_node: int = 1
    version: int = VERSION
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> str:
        """One line per table, keys in order: small, stable and readable."""
        head = {
            "version": self.version,
            "world": self.world,
            "ranks_per_node": self.ranks_per_node,
            "notes": list(self.notes),
        }
        tables = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(_table_json(table))}" for name, table in self.tables.items()
        )
        return json.dumps(head)[:-1] + ', "tables": {\n' + tables + "\n}}\n"

    @property
    def hash(self) -> str:
        """Identity of the plan: what a job carries so that a worker can refuse another."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read `to_json`'s form. Raises ValueError (also KeyError, TypeError) where it is none."""
        raw = json.loads(text)
        if raw["version"] != VERSION:
            raise ValueError(f"plan version {raw['version']}; this dlrmx reads {VERSION}")
        tables = {name: _table_from(entry) for name, entry in raw["tables"].items()}
        return cls(raw["world"], tables, ranks_per_node=raw["ranks_per_node"], notes=tuple(raw["notes"]))


def _table_json(table: TablePlan) -> dict[str, Any]:
    raw = asdict(table)
    raw["strips"] = [list(strip.values()) for strip in raw["strips"]]
    return raw


def _table_from(entry: dict[str, Any]) -> TablePlan:
    numbers = [entry["rows"], entry["dim"], *(number for strip in entry["strips"] for number in strip[:6])]
    if wrong := [number for number in numbers if type(number) is not int]:
        raise ValueError(f"{wrong[0]!r} is no whole number")
    ratios = [ratio for strip in entry["strips"] for ratio in strip[7:8]]
    if odd := [ratio for ratio in ratios if type(ratio) not in (int, float) or not 0 <= ratio <= 1]:
        raise ValueError(f"{odd[0]!r} is no cache ratio")
    return TablePlan(**{**entry, "strips": tuple(Strip(*strip) for strip in entry["strips"])})
