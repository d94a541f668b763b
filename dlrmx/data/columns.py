"""The columns of prepared data, in memory or memory-mapped: their layout, file names, and rows taken by number.

N rows, Nd dense columns, F1 one-hot features. A one-hot feature has exactly one id in each row and no weights; all of
them lie together, so that a row's ids are one stretch of bytes. Any other feature has bags of ids.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.manifest import Manifest
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Recipe

Int64s = NDArray[np.int64]
Floats = NDArray[np.float32]
Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True)
class FeatureLayout:
    """How one feature is stored: `rows` are its table's. `expand`: so many ids are made of each one that is stored."""

    name: str
    table: str
    rows: int
    one_hot: bool
    weighted: bool
    expand: int


@dataclass(frozen=True)
class Layout:
    """How a dataset is stored: its dense columns and its features, in recipe order."""

    dense: tuple[str, ...]
    features: tuple[FeatureLayout, ...]

    @property
    def id_type(self) -> np.dtype[np.int32] | np.dtype[np.int64]:
        """The narrower integer that holds every id."""
        wide = max(feature.rows for feature in self.features) > 2**31
        return np.dtype(np.int64) if wide else np.dtype(np.int32)

    @property
    def one_hot(self) -> tuple[FeatureLayout, ...]:
        return tuple(feature for feature in self.features if feature.one_hot)

    @property
    def bags(self) -> tuple[FeatureLayout, ...]:
        return tuple(feature for feature in self.features if not feature.one_hot)


def layout_of(recipe: Recipe, one_hot: set[str]) -> Layout:
    """The layout of the recipe's data, where the named features have one id in each row."""
    features = tuple(
        FeatureLayout(
            name,
            feature.table,
            recipe.tables[feature.table].rows,
            name in one_hot,
            feature.weights is not None,
            feature.expand,
        )
        for name, feature in recipe.features.items()
    )
    return Layout(tuple(recipe.dense), features)


def stored_layout(manifest: Manifest) -> Layout:
    """The layout of a prepared dataset."""
    features = tuple(
        FeatureLayout(name, facts.table, facts.rows, facts.one_hot, facts.weighted, facts.expand)
        for name, facts in manifest.features.items()
    )
    return Layout(tuple(manifest.dense), features)


@dataclass(frozen=True)
class BagColumn:
    """Bags of ids: row i has ids[offsets[i] : offsets[i + 1]]. offsets (N + 1,) int64; ids and weights (n,)."""

    offsets: Int64s
    ids: NDArray[np.integer]
    weights: Floats | None

    @classmethod
    def from_lengths(cls, lengths: Int64s, ids: NDArray[np.integer], weights: Floats | None) -> "BagColumn":
        return cls(np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]), ids, weights)

    @property
    def lengths(self) -> Int64s:
        return np.diff(self.offsets)

    def between(self, first: int, last: int) -> "BagColumn":
        """A view of the rows [first, last)."""
        offsets = self.offsets[first : last + 1]
        self._check(offsets[:-1], np.diff(offsets))
        begin, end = int(offsets[0]), int(offsets[-1])
        weights = None if self.weights is None else self.weights[begin:end]
        return BagColumn(offsets - begin, self.ids[begin:end], weights)

    def take(self, rows: Int64s) -> "BagColumn":
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        self._check(starts, lengths)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        weights = None if self.weights is None else self.weights[places]
        return BagColumn(offsets, self.ids[places], weights)

    def _check(self, starts: Int64s, lengths: Int64s) -> None:
        """Refuse bags that lie outside of the ids: a kernel would read past its input."""
        if len(starts) and (starts.min() < 0 or lengths.min() < 0 or (starts + lengths).max() > len(self.ids)):
            raise InputError(
                f"a bag of a feature is not within its {len(self.ids):,} ids",
                hint="the prepared data is damaged: remove it and run `dlrmx data prepare` again",
            )


@dataclass(frozen=True)
class Columns:
    """labels (N,) float32; dense (N, Nd) float32; one_hot (N, F1) ids; bags, one for each other feature, in order."""

    labels: Floats
    dense: Floats
    one_hot: NDArray[np.integer]
    bags: tuple[BagColumn, ...]

    def take(self, rows: Int64s) -> "Columns":
        """A copy of the given rows, in the given order. Raises IndexError where one is not in [0, N)."""
        # As unsigned numbers negative ones are large.
        if len(rows) and rows.view(np.uint64).max() >= len(self.labels):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self.labels)}")
        # As they were looked at before, nothing is clipped: "raise", which looks as it goes, takes a sixth longer.
        return Columns(
            np.take(self.labels, rows, mode="clip"),
            np.take(self.dense, rows, axis=0, mode="clip"),
            np.take(self.one_hot, rows, axis=0, mode="clip"),
            tuple(bag.take(rows) for bag in self.bags),
        )

    def between(self, first: int, last: int) -> "Columns":
        """A view of the rows [first, last): nothing is copied."""
        return Columns(
            self.labels[first:last],
            self.dense[first:last],
            self.one_hot[first:last],
            tuple(bag.between(first, last) for bag in self.bags),
        )


@dataclass(frozen=True)
class BagFiles:
    """The files of one feature with bags."""

    offsets: str
    ids: str
    weights: str


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split of a dataset: raw little-endian arrays."""

    split: str

    @property
    def labels(self) -> str:
        return f"{self.split}.labels.f32"

    @property
    def dense(self) -> str:
        return f"{self.split}.dense.f32"

    @property
    def one_hot(self) -> str:
        return f"{self.split}.one_hot.ids"

    def bag(self, number: int) -> BagFiles:
        """Of the feature at this place among those with bags (a feature's name may be no file name)."""
        stem = f"{self.split}.bag-{number:03d}"
        return BagFiles(f"{stem}.offsets.i64", f"{stem}.ids", f"{stem}.weights.f32")


def lookups_file(number: int) -> str:
    """The file of the look-ups of the feature at this place, over all splits."""
    return f"lookups-{number:03d}.npy"


def open_columns(folder: Path, manifest: Manifest, split: str) -> Columns:
    """The columns of one split, memory-mapped."""
    layout, files = stored_layout(manifest), SplitFiles(split)
    rows = manifest.splits[split].rows
    ids = layout.id_type
    one_hot: NDArray[np.integer] = _map(folder / files.one_hot, ids)

    def bag(number: int, feature: FeatureLayout) -> BagColumn:
        names = files.bag(number)
        weights = _map(folder / names.weights, np.dtype(np.float32)) if feature.weighted else None
        return BagColumn(_map(folder / names.offsets, np.dtype(np.int64)), _map(folder / names.ids, ids), weights)

    return Columns(
        _map(folder / files.labels, np.dtype(np.float32)),
        _map(folder / files.dense, np.dtype(np.float32)).reshape(rows, len(layout.dense)),
        one_hot.reshape(rows, len(layout.one_hot)),
        tuple(bag(number, feature) for number, feature in enumerate(layout.bags)),
    )


def _map(path: Path, kind: np.dtype[Kind]) -> NDArray[Kind]:
    """A file as one array; an empty file cannot be mapped."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=kind)
    # "c": private to this process and writable, as torch asks of arrays that its tensors share.
    return np.asarray(np.memmap(path, dtype=kind, mode="c"))
