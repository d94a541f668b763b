"""From texts to ids of a table: by hash, or by a vocabulary of the texts met in training.

Row 0 of a table is for missing values. Hash: 1 + hash % (rows - 1). Vocabulary: row 1 is for unseen values, the others
take the values in order of frequency, ties in order of their text, as far as the rows go. In the end every id goes
through the table's permutation. All features of a table share what it holds.
"""

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from dlrmx.data.hashing import hash_texts
from dlrmx.data.permute import permute_ids
from dlrmx.recipe.schema import Recipe

MISSING = 0
UNSEEN = 1
RESERVED = 2
# Beside vocabularies: how many values of each table found no room.
OVERFLOW = "overflow.json"
# Counts are summed up whenever so many entries came in.
COMPACT = 2**20

Int64s = NDArray[np.int64]


class Found(NamedTuple):
    """The permuted id of each of n texts; which of them are unseen, which are bad."""

    ids: Int64s
    unseen: NDArray[np.bool_]
    bad: NDArray[np.bool_]


class Lookup(Protocol):
    """Ids for texts."""

    def ids(self, texts: pa.Array) -> Found: ...


def vocabulary_tables(recipe: Recipe) -> dict[str, int]:
    """The tables with a vocabulary, and how often a value must be met in training to be in it."""
    users = recipe.features.values()
    return {feature.table: feature.min_count for feature in users if feature.ids == "vocabulary"}


def missing_id(rows: int) -> int:
    """Where the vector for missing values lies in a table."""
    return int(permute_ids(np.array([MISSING], dtype=np.int64), rows)[0])


class HashLookup:
    """Ids by hash: no value is unseen, different ones may share a row."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def ids(self, texts: pa.Array) -> Found:
        none = np.zeros(len(texts), dtype=np.bool_)
        if self._rows == 1:
            return Found(np.zeros(len(texts), dtype=np.int64), none, none)
        plain = 1 + (hash_texts(texts) % np.uint64(self._rows - 1)).astype(np.int64)
        return Found(permute_ids(plain, self._rows), none, none)


class VocabularyLookup:
    """Ids by a vocabulary, given in order."""

    def __init__(self, values: pa.Array, rows: int) -> None:
        self._rows = rows
        hashes = hash_texts(values)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes, self._values = hashes[self._order], values

    def ids(self, texts: pa.Array) -> Found:
        found = np.full(len(texts), -1, dtype=np.int64)
        if len(self._hashes):
            places = np.searchsorted(self._hashes, hash_texts(texts))
            candidates = self._order[np.minimum(places, len(self._order) - 1)]
            same = compute.equal(self._values.take(pa.array(candidates)), texts).to_numpy(zero_copy_only=False)
            found = np.where(same, candidates, -1)
        unseen = found < 0
        plain = np.where(unseen, UNSEEN, found + RESERVED)
        ids = permute_ids(np.minimum(plain, self._rows - 1), self._rows)
        return Found(ids, unseen, np.zeros(len(texts), dtype=np.bool_))


class Counter:
    """Counts texts in memory proportional to the different ones."""

    def __init__(self) -> None:
        self._pending: list[pa.Table] = []
        self._entries = 0
        self._limit = COMPACT

    def add(self, texts: pa.Array, counts: Int64s) -> None:
        """Count each text so many times more."""
        self._pending.append(pa.table({"value": texts, "count": pa.array(counts)}))
        self._entries += len(texts)
        if self._entries > self._limit:
            self._compact()

    def save(self, path: Path) -> None:
        """Write the counts down."""
        parquet.write_table(self._compact(), path)

    def load(self, path: Path) -> None:
        """Add counts that `save` wrote."""
        counted = parquet.read_table(path)
        self.add(counted["value"].combine_chunks(), counted["count"].to_numpy())

    def vocabulary(self, min_count: int, rows: int) -> tuple[pa.Array, int]:
        """The values that a table of `rows` rows holds, in order; and how many more would be frequent enough."""
        counted = self._compact()
        counted = counted.filter(compute.greater_equal(counted["count"], min_count))
        ordered = counted.sort_by([("count", "descending"), ("value", "ascending")])
        room = max(rows - RESERVED, 0)
        return ordered["value"].slice(0, room).combine_chunks(), max(len(ordered) - room, 0)

    def _compact(self) -> pa.Table:
        if not self._pending:
            return pa.table({"value": pa.array([], pa.string()), "count": pa.array([], pa.int64())})
        summed = pa.concat_tables(self._pending).group_by("value").aggregate([("count", "sum")])
        counted = summed.select(["value", "count_sum"]).rename_columns(["value", "count"])
        self._pending, self._entries = [counted], len(counted)
        self._limit = 2 * len(counted) + COMPACT
        return counted


def write_texts(path: Path, texts: pa.Array) -> None:
    """Write a vocabulary's values down, in order."""
    parquet.write_table(pa.table({"value": texts}), path)


def read_texts(path: Path) -> pa.Array:
    """What `write_texts` wrote."""
    return parquet.read_table(path)["value"].combine_chunks()
