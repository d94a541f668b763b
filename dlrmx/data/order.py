"""The order of a split's rows within an epoch ("strata-v1"): a pure function of (seed, epoch, position).

Rows lie in blocks of 64, and blocks in strata of M neighbours. An epoch is M windows; each has one block of every
stratum, at first any one and then the next, around its end. So a window is a sample spread evenly over the whole split,
and its rows are permuted: the mean label of a batch varies as if all rows were shuffled, however they drift from first
to last. A reader goes through each stratum block by block; any slice of an epoch can be computed alone, by any rank.

N rows are ceil(N / 64) blocks, M = ceil(blocks / 16,384), strata are ceil(blocks / M). Window w has of stratum s the
block s * M + (t(s) + w) mod M, where t(s) = draw(s, key, M), key = mix_key(text64-v1 of the name, seed, epoch) and
draw(x, key, n) = (mix64(x + key) >> 32) * n >> 32. Its blocks ascend; one that the last stratum lacks is passed over.

Its n rows are permuted as x = i * C + j with C = 2**ceil(bits / 2), bits those of n - 1, and 0 <= i < R = ceil(n / C).
Rounds 0 to 3 in turn, even ones i = (i + F(j)) mod R, odd ones j = (j + F(i)) mod C, where F(h) is draw(h, k, R or C)
with k = mix_key(key, w) + (round + 1) * 0x9E3779B97F4A7C15. A result that is not below n goes through the rounds again.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.hashing import GOLDEN, MASK64, key_of_text, mix64, mix_key

ORDER = "strata-v1"
BLOCK_BITS = 6
BLOCK = 1 << BLOCK_BITS
# A window is at most 2**20 rows: 160 MB of Criteo's, so that their pages stay in memory while they are trained on.
WINDOW_BLOCKS = 16_384
ROUNDS = 4

Int64s = NDArray[np.int64]


def shuffled_rows(num_rows: int, *, seed: int, epoch: int, start: int, stop: int) -> Int64s:
    """The rows at positions [start, stop) of an epoch over `num_rows` rows, 0 <= start <= stop <= num_rows."""
    return shuffled_at(np.arange(start, stop, dtype=np.int64), num_rows, seed=seed, epoch=epoch)


def shuffled_at(positions: Int64s, num_rows: int, *, seed: int, epoch: int) -> Int64s:
    """The rows at ascending positions of an epoch over `num_rows` rows, each in [0, num_rows)."""
    if len(positions) == 0:
        return np.zeros(0, dtype=np.int64)
    first, last = positions[0], positions[-1]
    assert first >= 0 and last < num_rows, f"positions {first} to {last} of {num_rows}"
    return _epoch(num_rows, seed, epoch).rows(positions)


@lru_cache(maxsize=4)
def _epoch(num_rows: int, seed: int, epoch: int) -> "_Epoch":
    return _Epoch(num_rows, mix_key(key_of_text(ORDER), seed, epoch))


class _Epoch:
    """One epoch's strata and windows."""

    def __init__(self, num_rows: int, key: int) -> None:
        self._key = key
        self._num_blocks = -(-num_rows // BLOCK)
        self._windows = -(-self._num_blocks // WINDOW_BLOCKS)
        strata = np.arange(-(-self._num_blocks // self._windows), dtype=np.int64)
        self._first = strata * self._windows
        self._turns = _draw(len(strata), key, self._windows)
        # Only the last stratum may lack blocks, or hold the short one.
        last = self._first[-1] + (self._turns[-1] + np.arange(self._windows)) % self._windows
        rows_of_last = np.clip(num_rows - last * BLOCK, 0, BLOCK)
        # The position at which each window begins, and the end.
        self._begins = np.concatenate([[0], np.cumsum((len(strata) - 1) * BLOCK + rows_of_last)])
        self._window = lru_cache(maxsize=2)(self._make_window)  # two, where a batch lies over a border

    def rows(self, positions: Int64s) -> Int64s:
        """The rows at ascending positions, of which there is one at least."""
        first, last = (int(number) - 1 for number in np.searchsorted(self._begins, positions[[0, -1]], side="right"))
        cuts = [0, *np.searchsorted(positions, self._begins[first + 1 : last + 1]).tolist(), len(positions)]
        parts = [
            self._window(first + number).rows(positions[begin:end] - self._begins[first + number])
            for number, (begin, end) in enumerate(pairwise(cuts))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _make_window(self, window: int) -> "_Window":
        blocks = self._first + (self._turns + window) % self._windows
        if blocks[-1] >= self._num_blocks:
            blocks = blocks[:-1]
        size = int(self._begins[window + 1] - self._begins[window])
        return _Window(blocks, size, mix_key(self._key, window))


class _Window:
    """The permutation of one window's rows, its round functions as tables."""

    def __init__(self, blocks: Int64s, size: int, key: int) -> None:
        self._size, self._column_bits = size, ((size - 1).bit_length() + 1) // 2
        self._columns = 1 << self._column_bits
        self._height = -(-size // self._columns)
        sides = (self._columns, self._height)  # what a round reads and what it adds to, in turn
        # Repeated, so that a sum needs no modulo before it is looked up: it is below three times its side.
        self._tables = [
            np.tile(_draw(sides[number % 2], key + (number + 1) * GOLDEN, sides[1 - number % 2]), 3)
            for number in range(ROUNDS)
        ]
        self._starts = np.tile(np.arange(self._height) << self._column_bits, 3)  # of each i, modulo the height
        self._first_rows = blocks * BLOCK

    def rows(self, offsets: Int64s) -> Int64s:
        """The rows at these places in the window."""
        places = self._permuted(offsets)
        outside = np.flatnonzero(places >= self._size)
        while len(outside):
            places[outside] = self._permuted(places[outside])
            outside = outside[places[outside] >= self._size]
        rows = self._first_rows.take(places >> BLOCK_BITS)
        places &= BLOCK - 1
        rows += places
        return rows

    def _permuted(self, offsets: Int64s) -> Int64s:
        sums = [offsets >> self._column_bits, offsets & (self._columns - 1)]
        for number, table in enumerate(self._tables):
            sums[number % 2] += table.take(sums[1 - number % 2])
        i, j = sums
        j &= self._columns - 1
        j += self._starts.take(i)
        return j


def _draw(count: int, key: int, size: int) -> Int64s:
    """For each x in [0, count) a number in [0, size), size < 2**32, that depends on x and the key alone."""
    values = np.arange(count, dtype=np.uint64) + np.uint64(key & MASK64)
    drawn: Int64s = ((mix64(values) >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)).astype(np.int64)
    return drawn
