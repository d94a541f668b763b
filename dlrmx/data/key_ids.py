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

# A table of so many rows or fewer has its whole permutation looked up, once it saw as many ids: 8 MiB.
IMAGE_ROWS = 2**21
# So many keys of a table are sorted and counted at once.
SORTED_KEYS = 2**18

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
    """Ids by a vocabulary: its n keys, ascending, and the plain id of each.

    The range of the keys is cut into about n equal buckets. A key is searched for within its own: of keys that are
    spread evenly, as hashes are, that is one of a few, where a search among all would miss the cache at each step.
    """

    def __init__(self, keys: UInt64s, ids: Int64s, rows: int) -> None:
        self._sorted = keys
        self._ids = permute_ids(np.minimum(np.append(ids, UNSEEN), rows - 1), rows)
        if not len(keys):
            return
        self._lowest = keys[0]
        span = int(keys[-1] - keys[0])
        self._shift = np.uint64(max(span.bit_length() - len(keys).bit_length(), 0))
        sizes = np.bincount(((keys - self._lowest) >> self._shift).astype(np.int64))
        self._first = (np.cumsum(sizes) - sizes).astype(np.int32)
        self._halves = [1 << step for step in reversed(range(int(sizes.max()).bit_length()))]

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
        places = np.full(len(keys), len(self._sorted))
        if len(self._sorted):
            found = self._search(keys)
            places = np.where(self._sorted.take(found, mode="clip") == keys, found, places)
        return Found(self._ids.take(places), places == len(self._sorted), np.zeros(len(keys), dtype=np.bool_))

    def _search(self, keys: UInt64s) -> Int64s:
        """How many keys of the vocabulary are smaller than each that is one of them; of any other, any number."""
        buckets = np.minimum((keys - self._lowest) >> self._shift, np.uint64(len(self._first) - 1))
        places: Int64s = self._first.take(buckets.view(np.int64)).astype(np.int64)
        for half in self._halves:
            smaller = self._sorted.take(places + (half - 1), mode="clip") < keys
            places += smaller * half
        return places


class KeyCounter:
    """Counts keys, in memory proportional to the different ones."""

    def __init__(self) -> None:
        self._uncounted: list[UInt64s] = []
        self._keys: list[UInt64s] = []
        self._counts: list[Int64s] = []
        self._waiting, self._entries, self._limit = 0, 0, COMPACT

    def add(self, keys: UInt64s) -> None:
        """Count each key once more."""
        self._uncounted.append(keys)
        self._waiting += len(keys)
        if self._waiting > SORTED_KEYS:
            self._count()

    def _count(self) -> None:
        keys = np.concatenate([np.zeros(0, dtype=np.uint64), *self._uncounted])
        self._uncounted, self._waiting = [], 0
        # Sorting half as many bytes takes little more than half the time.
        narrow = np.uint32 if keys.max(initial=0) < 2**32 else np.uint64
        keys = np.sort(keys.astype(narrow))
        firsts = np.flatnonzero(np.concatenate([np.ones(min(len(keys), 1), dtype=np.bool_), keys[1:] != keys[:-1]]))
        self._add_counts(keys[firsts].astype(np.uint64), np.diff(firsts, append=len(keys)))

    def _add_counts(self, keys: UInt64s, counts: Int64s) -> None:
        self._keys.append(keys)
        self._counts.append(counts)
        self._entries += len(keys)
        if self._entries > self._limit:
            self._compact()

    def vocabulary(self, min_count: int, rows: int) -> tuple[UInt64s, int]:
        """The keys that a table of `rows` rows holds, in order; and how many more would be frequent enough."""
        keys, counts = self._compact()
        frequent = counts >= min_count
        keys, counts = keys[frequent], counts[frequent]
        order = np.argsort(-counts, kind="stable")
        room = max(rows - RESERVED, 0)
        return keys[order[:room]], max(len(keys) - room, 0)

    def save(self, path: Path) -> None:
        """Write the counts down."""
        keys, counts = self._compact()
        np.save(path, np.stack([keys, counts.astype(np.uint64)]))

    def load(self, path: Path) -> None:
        """Add counts that `save` wrote."""
        keys, counts = np.load(path)
        self._add_counts(keys, counts.astype(np.int64))

    def _compact(self) -> tuple[UInt64s, Int64s]:
        """The different keys so far, ascending, and their counts."""
        if self._uncounted:
            self._count()
        if len(self._keys) == 1:
            return self._keys[0], self._counts[0]
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
