"""Batches by row number, gathered from memory-mapped columns. B rows, N dense columns."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.columns import BagColumn, FeatureLayout, open_columns, stored_layout
from dlrmx.data.expand import expanded
from dlrmx.data.hashing import TEXT_HASH
from dlrmx.data.manifest import read_manifest
from dlrmx.data.order import ORDER
from dlrmx.data.permute import PERMUTATION
from dlrmx.data.splits import SPLIT_HASH
from dlrmx.errors import InputError


@dataclass(frozen=True)
class Bags:
    """The ids of one feature, bag after bag: ids int64 (n,), lengths int32 (B,), weights float32 (n,) or None."""

    ids: NDArray[np.int64]
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
        self._layout = stored_layout(manifest)
        self._columns = open_columns(folder, manifest, name)

    def take(self, rows: NDArray[np.int64]) -> Batch:
        """The given rows (each in [0, self.rows)), in the given order."""
        taken = self._columns.take(rows)
        # One row of this (F1, B) for each one-hot feature.
        one_hot = iter(taken.one_hot.T.astype(np.int64, order="C"))
        bags = iter(taken.bags)
        return Batch(
            labels=taken.labels,
            dense=taken.dense,
            bags={
                feature.name: _one_hot(next(one_hot), feature) if feature.one_hot else _bags(next(bags))
                for feature in self._layout.features
            },
        )

    def empty(self) -> Batch:
        """A batch of no rows: what a rank without a share of the batch trains on."""
        return self.take(np.zeros(0, dtype=np.int64))


def _one_hot(ids: NDArray[np.int64], feature: FeatureLayout) -> Bags:
    lengths = np.full(len(ids), feature.expand, dtype=np.int32)
    return Bags(ids if feature.expand == 1 else expanded(ids, feature.expand, feature.rows), lengths, None)


def _bags(column: BagColumn) -> Bags:
    return Bags(column.ids.astype(np.int64), column.lengths.astype(np.int32), column.weights)
