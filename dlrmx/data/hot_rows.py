"""The rows of each table that take most look-ups, and how much they take: what a cache, and a planner, live by.

A table whose rows are all counted (lookups.py), or a feature of up to 2**18 look-ups, is known exactly. Otherwise the
busiest rows are those of 2**18 stored ids, evenly spaced over the splits; the counted rows stand for all other rows.
All of it is read off the joined data, so that it does not depend on how the work was cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.columns import Columns, Layout, lookups_file, open_columns, stored_layout
from dlrmx.data.lookups import Lookups
from dlrmx.data.manifest import FeatureFacts, Manifest
from dlrmx.data.splits import SPLITS

# Shares of a table's rows at which the manifest tells the share of the look-ups.
FRACTIONS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
TOP = 10
SAMPLED = 2**18
# Ids that are met so often in a sample have rows of their own there; their shares are known to 12%.
BUSY = 64

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


@dataclass(frozen=True)
class _Rows:
    """Some rows (n,): how many look-ups each takes, and how many rows of the table it stands for."""

    counts: Float64s
    weights: Float64s


def with_hot_rows(folder: Path, manifest: Manifest) -> Manifest:
    """The manifest with each feature's busiest rows, read from the files of its dataset in `folder`."""
    layout = stored_layout(manifest)
    columns = [open_columns(folder, manifest, split) for split in SPLITS]
    features = {
        name: _described(manifest.features[name], folder / lookups_file(number), columns, layout, name)
        for number, name in enumerate(manifest.features)
    }
    return replace(manifest, features=features)


def _described(facts: FeatureFacts, file: Path, columns: list[Columns], layout: Layout, name: str) -> FeatureFacts:
    lookups = Lookups(facts.rows)
    lookups.join(file.read_bytes())
    total = sum(facts.histogram)
    counted = len(lookups.counts) == facts.rows
    stride = 1 if counted else -(-total // SAMPLED)
    if counted:
        rows = np.flatnonzero(lookups.counts)
        counts = lookups.counts[rows]
    else:
        sample = np.concatenate([ids[::stride] for ids in _ids(columns, layout, name)]).astype(np.int64)
        rows, counts = np.unique(sample, return_counts=True)
    exact = counted or stride <= 1
    scale = 1.0 if exact else total / len(sample)
    first = np.argsort(-counts, kind="stable")[:TOP]
    top = [[int(row), round(count * scale)] for row, count in zip(rows[first], counts[first].tolist(), strict=True)]
    known = _Rows(counts.astype(np.float64) * scale, np.ones(len(counts)))
    if not exact:
        busy = counts >= BUSY
        known = _others_too(
            lookups.counts, rows[busy], _Rows(known.counts[busy], known.weights[busy]), facts.rows, total
        )
    sampled = 0 if exact else len(sample)
    return replace(facts, top=top, sampled=sampled, hot=_hot(known, facts.rows))


def _ids(columns: list[Columns], layout: Layout, name: str) -> Iterator[NDArray[np.integer]]:
    """The stored ids of a feature, split by split."""
    one_hot = [feature.name for feature in layout.one_hot]
    bags = [feature.name for feature in layout.bags]
    for split in columns:
        yield split.one_hot[:, one_hot.index(name)] if name in one_hot else split.bags[bags.index(name)].ids


def _others_too(counts: Int64s, busy: Int64s, known: _Rows, rows: int, total: int) -> _Rows:
    """The busy rows, and the counted ones that are none of them in the place of all others of the table."""
    other = np.ones(len(counts), dtype=np.bool_)
    other[busy[busy < len(counts)]] = False
    others = counts[other].astype(np.float64)
    weight = (rows - len(busy)) / len(others)
    left = max(total - known.counts.sum(), 0.0)
    met = others.sum() * weight
    if met:
        others *= left / met
    return _Rows(np.concatenate([known.counts, others]), np.concatenate([known.weights, np.full(len(others), weight)]))


def _hot(rows: _Rows, table_rows: int) -> list[list[float]]:
    """(share of the table's rows, share of the look-ups that the busiest so many rows take), for each of FRACTIONS."""
    order = np.argsort(-rows.counts, kind="stable")
    taken = np.concatenate([[0.0], np.cumsum(rows.weights[order])])
    lookups = np.concatenate([[0.0], np.cumsum((rows.counts * rows.weights)[order])])
    if lookups[-1] == 0:
        return [[fraction, 0.0] for fraction in FRACTIONS]
    shares = np.interp([fraction * table_rows for fraction in FRACTIONS], taken, lookups) / lookups[-1]
    return [[fraction, round(share, 6)] for fraction, share in zip(FRACTIONS, shares.tolist(), strict=True)]
