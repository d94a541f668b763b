"""From unsigned 64-bit keys to ids of a table: by hash, vocabulary, remainder, or as they are.

Row 0 is for missing values. hash: 1 + h % (rows - 1), where h is text64-v1 of the key's 8 bytes, lowest first. modulo:
1 + key % (rows - 1). identity: 1 + key; keys above rows - 2 are bad. vocabulary: row 1 is for unseen keys, the others
take the keys met in training in order of frequency, ties in order of the key. In the end every id goes through the
table's permutation.
"""

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.hashing import GOLDEN, UInt64s, mix64
from dlrmx.data.permute import permute_ids
from dlrmx.data.vocabulary import COMPACT, RESERVED, UNSEEN, Found
from dlrmx.recipe.schema import Feature, Table

# A table of so many rows or fewer has its whole permutation looked up, once it saw as many ids: 16 MiB.
IMAGE_ROWS = 2**22

Int64s = NDArray[np.int64]


class KeyLookup(Protocol):
    """Ids for keys."""

    def ids(self, keys: UInt64s) -> Found: ...


class Permutation:
    """`permute_ids` for many calls: from some number of ids on, it looks up what it computed before."""

    def __init__(self, rows: int) -> None:
        self._rows, self._seen = rows, 0
        self._image: NDArray[np.int32] | None = None

    def __call__(self, ids: Int64s) -> Int64s:
        self._seen += len(ids)
        if self._image is None and self._rows <= min(self._seen, IMAGE_ROWS):
            self._image = permute_ids(np.arange(self._rows), self._rows).astype(np.int32)
        return permute_ids(ids, self._rows) if self._image is None else self._image[ids].astype(np.int64)


class PlainKeys:
    """Ids by hash or remainder: every key has one; or as they are (identity): a key that does not fit is bad."""

    def __init__(self, feature: Feature, table: Table) -> None:
        self._kind, self._bad_ids, self._rows = feature.ids, table.bad_ids, table.rows
        self._permute = Permutation(table.rows)

    def ids(self, keys: UInt64s) -> Found:
        none = np.zeros(len(keys), dtype=np.bool_)
        if self._rows == 1:
            return Found(np.zeros(len(keys), dtype=np.int64), none, none)
        room = np.uint64(self._rows - 1)
        bad = keys >= room if self._kind == "identity" else none
        chosen = hash_keys(keys) if self._kind == "hash" else keys
        if bad.any():
            instead = hash_keys(keys[bad]) if self._bad_ids == "hash" else room - np.uint64(1)
            chosen = chosen.copy()
            chosen[bad] = instead
        return Found(self._permute(1 + (chosen % room).astype(np.int64)), none, bad)


class KeyVocabulary:
    """Ids by a vocabulary: its keys, ascending, and the plain id of each."""

    def __init__(self, keys: UInt64s, ids: Int64s, rows: int) -> None:
        self._sorted, self._ids = keys, ids
        self._permute, self._rows = Permutation(rows), rows

    @classmethod
    def load(cls, path: Path, rows: int) -> "KeyVocabulary":
        """What `save` wrote, memory-mapped: processes share it."""
        keys, ids = np.asarray(np.load(path, mmap_mode="r"))
        return cls(keys, ids.view(np.int64), rows)

    @staticmethod
    def save(path: Path, keys: UInt64s) -> None:
        """A vocabulary of these keys, in order."""
        order = np.argsort(keys)
        np.save(path, np.stack([keys[order], (order + RESERVED).astype(np.uint64)]))

    def ids(self, keys: UInt64s) -> Found:
        plain = np.full(len(keys), UNSEEN, dtype=np.int64)
        if len(self._sorted):
            places = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
            plain = np.where(self._sorted[places] == keys, self._ids[places], UNSEEN)
        ids = self._permute(np.minimum(plain, self._rows - 1))
        return Found(ids, plain == UNSEEN, np.zeros(len(keys), dtype=np.bool_))


class KeyCounter:
    """Counts keys, in memory proportional to the different ones."""

    def __init__(self) -> None:
        self._keys: list[UInt64s] = []
        self._counts: list[Int64s] = []
        self._entries, self._limit = 0, COMPACT

    def add(self, keys: UInt64s, counts: Int64s) -> None:
        """Count each key so many times more."""
        self._keys.append(keys)
        self._counts.append(counts)
        self._entries += len(keys)
        if self._entries > self._limit:
            self.compact()

    def vocabulary(self, min_count: int, rows: int) -> tuple[UInt64s, int]:
        """The keys that a table of `rows` rows holds, in order; and how many more would be frequent enough."""
        keys, counts = self.compact()
        frequent = counts >= min_count
        keys, counts = keys[frequent], counts[frequent]
        order = np.argsort(-counts, kind="stable")
        room = max(rows - RESERVED, 0)
        return keys[order[:room]], max(len(keys) - room, 0)

    def save(self, path: Path) -> None:
        """Write the counts down."""
        keys, counts = self.compact()
        np.save(path, np.stack([keys, counts.astype(np.uint64)]))

    def load(self, path: Path) -> None:
        """Add counts that `save` wrote."""
        keys, counts = np.load(path)
        self.add(keys, counts.astype(np.int64))

    def compact(self) -> tuple[UInt64s, Int64s]:
        """The different keys so far, ascending, and their counts."""
        keys = np.concatenate([np.zeros(0, dtype=np.uint64), *self._keys])
        counts = np.concatenate([np.zeros(0, dtype=np.int64), *self._counts])
        order = np.argsort(keys)
        keys, counts = keys[order], counts[order]
        firsts = np.flatnonzero(np.diff(keys, prepend=~keys[:1]) != 0)
        keys, counts = keys[firsts], np.add.reduceat(counts, firsts) if len(firsts) else counts
        self._keys, self._counts, self._entries = [keys], [counts], len(keys)
        self._limit = 2 * len(keys) + COMPACT
        return keys, counts


def hash_keys(keys: UInt64s) -> UInt64s:
    """text64-v1 of each key's 8 bytes, lowest first."""
    of_length = mix64(np.array([8 + GOLDEN], dtype=np.uint64))
    return mix64(keys ^ of_length) + np.uint64(GOLDEN)
