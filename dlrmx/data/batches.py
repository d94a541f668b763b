"""Batches by row number, gathered from memory-mapped columns and checked.

B rows, N dense columns, F1 one-hot features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.columns import BagColumn, Columns, open_columns, stored_layout
from dlrmx.data.expand import expanded
from dlrmx.data.hashing import TEXT_HASH
from dlrmx.data.manifest import read_manifest
from dlrmx.data.order import ORDER
from dlrmx.data.permute import PERMUTATION
from dlrmx.data.splits import SPLIT_HASH
from dlrmx.errors import InputError

Int64s = NDArray[np.int64]
Ids = NDArray[np.integer]
PIECE = 256  # rows
AGAIN = "the prepared data is damaged or was made for another recipe: remove it and run `dlrmx data prepare` again"


class Bags(NamedTuple):
    """The ids of one feature, bag after bag: ids (n,), lengths int32 (B,), weights float32 (n,) or None.

    ids: int32, or int64 where they are expanded or a table needs it. A tuple, as a batch makes one for each feature.
    """

    ids: Ids
    lengths: NDArray[np.int32]
    weights: NDArray[np.float32] | None


@dataclass(frozen=True)
class Batch:
    """labels float32 (B,), dense float32 (B, N), bags by feature in recipe order."""

    labels: NDArray[np.float32]
    dense: NDArray[np.float32]
    bags: dict[str, Bags]


class Split:
    """One split of a prepared dataset."""

    def __init__(self, folder: Path, name: str) -> None:
        """Open split `name` ("train", "validation", "test"). Raises InputError where the dataset is damaged."""
        manifest = read_manifest(folder)
        made_by = (manifest.order, manifest.permutation, manifest.id_hash, manifest.split_hash)
        ours = (ORDER, PERMUTATION, TEXT_HASH, SPLIT_HASH)
        if made_by != ours:
            raise InputError(
                f"{folder}: made with {', '.join(made_by)}; this dlrmx has {', '.join(ours)}",
                hint=f"Remove {folder} and prepare again.",
            )
        self.rows = manifest.splits[name].rows
        # Label, dense columns and ids, on average.
        self.values_per_row = 1 + len(manifest.dense) + sum(one.mean_pooling for one in manifest.features.values())
        self._layout = stored_layout(manifest)
        self._columns = open_columns(folder, manifest, name)
        self._one_hot_names = [feature.name for feature in self._layout.one_hot]
        self._expanded = [feature for feature in self._layout.one_hot if feature.expand > 1]
        unsigned = np.dtype(f"u{self._layout.id_type.itemsize}")
        self._one_hot_rows = np.array([feature.rows for feature in self._layout.one_hot], dtype=unsigned)

    @property
    def table_rows(self) -> dict[str, int]:
        """The rows of each feature's table."""
        return {feature.name: feature.rows for feature in self._layout.features}

    def take(self, rows: Int64s) -> Batch:
        """The given rows (each in [0, self.rows)), in the given order.

        Raises InputError where an id is outside of its table, which a kernel would repair silently: it names the
        feature, the id and the table's rows.
        """
        return next(self.take_divided(rows, [len(rows)]))

    def take_divided(self, rows: Int64s, sizes: Sequence[int]) -> Iterator[Batch]:
        """Batches of the first sizes[0] of these rows, of the next sizes[1], ...: views of arrays that are gathered
        at once, as `take` gathers them."""
        return self._batches(self._columns.take(rows), sizes)

    def between(self, first: int, last: int) -> Batch:
        """The rows [first, last), as `take` gives them; nothing is copied but one-hot ids."""
        return next(self._batches(self._columns.between(first, last), [last - first]))

    def empty(self) -> Batch:
        """A batch of no rows: what a rank without a share of the batch trains on."""
        return self.between(0, 0)

    def _batches(self, taken: Columns, sizes: Sequence[int]) -> Iterator[Batch]:
        ids, one = self._by_feature(taken.one_hot), np.ones(len(taken.labels), dtype=np.int32)
        for first, last in pairwise(accumulate(sizes, initial=0)):
            rows = taken if last - first == len(one) else taken.between(first, last)
            bags = self._bags(ids[:, first:last], one[first:last], rows.bags)
            yield Batch(rows.labels, rows.dense, bags)

    def _by_feature(self, one_hot: Ids) -> Ids:
        """(B, F1) as (F1, B), each in its table."""
        ids = _turned(one_hot)
        # As unsigned numbers negative ids are large ones, so that one pass finds what is wrong.
        if ids.size and (ids.view(self._one_hot_rows.dtype).max(axis=1) >= self._one_hot_rows).any():
            for feature, row in zip(self._layout.one_hot, ids, strict=True):
                check_ids(feature.name, row, feature.rows)
        return ids

    def _bags(self, one_hot: Ids, one: NDArray[np.int32], columns: Sequence[BagColumn]) -> dict[str, Bags]:
        """one_hot (F1, B), one (B,) ones."""
        bags = {name: Bags(ids, one, None) for name, ids in zip(self._one_hot_names, one_hot, strict=True)}
        for feature in self._expanded:
            ids = expanded(bags[feature.name].ids, feature.expand, feature.rows)
            bags[feature.name] = Bags(ids, one * np.int32(feature.expand), None)
        if not columns:
            return bags
        for feature, column in zip(self._layout.bags, columns, strict=True):
            check_ids(feature.name, column.ids, feature.rows)
            bags[feature.name] = Bags(column.ids, column.lengths.astype(np.int32), column.weights)
        return {feature.name: bags[feature.name] for feature in self._layout.features}


def check_ids(feature: str, ids: Ids, rows: int) -> None:
    """Raise InputError where an id is not one of a table of `rows` rows."""
    outside = ids[(ids < 0) | (ids >= rows)]
    if len(outside):
        raise InputError(
            f"feature {feature}: id {int(outside[0])} is outside of its table's {rows} rows "
            f"({len(outside)} such ids in this batch)",
            hint=AGAIN,
        )


def _turned(one_hot: Ids) -> Ids:
    """(B, F1) as (F1, B), in pieces that stay in the first cache: twice as fast for large B."""
    ids = np.empty(one_hot.shape[::-1], dtype=one_hot.dtype)
    for first in range(0, len(one_hot), PIECE):
        ids[:, first : first + PIECE] = one_hot[first : first + PIECE].T
    return ids
