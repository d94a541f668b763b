"""The order of a split's rows within an epoch ("window-v1"): a pure function of (seed, epoch, position).

Blocks of 4,096 rows are permuted; 64 blocks that then lie side by side are a window, whose rows are permuted. So a
reader stays within one window of the files, and any slice of an epoch can be computed alone, by any rank.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.hashing import key_of_text, mix_key
from dlrmx.data.permute import permute

ORDER = "window-v1"
BLOCK = 4_096
WINDOW_BLOCKS = 64
WINDOW = BLOCK * WINDOW_BLOCKS

Int64s = NDArray[np.int64]


def epoch_rows(
    num_rows: int, *, seed: int, epoch: int, start: int, stop: int, order: Literal["shuffled", "as_stored"]
) -> Int64s:
    """The rows at positions [start, stop) of an epoch over `num_rows` rows, 0 <= start <= stop <= num_rows."""
    assert 0 <= start <= stop <= num_rows, f"positions {start} to {stop} of {num_rows}"
    positions = np.arange(start, stop, dtype=np.int64)
    if order == "as_stored" or start == stop:
        return positions
    return _shuffle(num_rows, seed, epoch).rows(positions)


@lru_cache(maxsize=4)
def _shuffle(num_rows: int, seed: int, epoch: int) -> "_Shuffle":
    return _Shuffle(num_rows, mix_key(key_of_text(ORDER), seed, epoch))


class _Shuffle:
    """One epoch's shuffle."""

    def __init__(self, num_rows: int, key: int) -> None:
        self.num_rows = num_rows
        self.num_blocks = -(-num_rows // BLOCK)
        self.key = key
        # The last block may be short. Its slot among the permuted blocks says which window is the short one.
        last = np.array([self.num_blocks - 1], dtype=np.int64)
        self.short_window = int(permute(last, self.num_blocks, key, inverse=True)[0]) // WINDOW_BLOCKS
        self.lacking = self.num_blocks * BLOCK - num_rows

    def rows(self, positions: Int64s) -> Int64s:
        """The rows at the given positions, which ascend."""
        parts = []
        window = self._window_of(int(positions[0]))
        while len(positions):
            begin, end = self._begin(window), self._begin(window + 1)
            count = int(np.searchsorted(positions, end))
            parts.append(self._within(window, positions[:count] - begin, end - begin))
            positions = positions[count:]
            window += 1
        return np.concatenate(parts)

    def _begin(self, window: int) -> int:
        """The position at which a window begins; the end of the epoch for the window after the last."""
        lacking = self.lacking if window > self.short_window else 0
        return min(window * WINDOW - lacking, self.num_rows)

    def _window_of(self, position: int) -> int:
        window = position // WINDOW
        return window + 1 if position >= self._begin(window + 1) else window

    def _within(self, window: int, offsets: Int64s, size: int) -> Int64s:
        """The rows at offsets into a window of `size` rows."""
        blocks, key = _window(self.num_blocks, self.key, window)
        shuffled = permute(offsets, size, key)
        rows: Int64s = blocks[shuffled // BLOCK] * BLOCK + shuffled % BLOCK
        return rows


@lru_cache(maxsize=4)
def _window(num_blocks: int, key: int, window: int) -> tuple[Int64s, int]:
    """The blocks of a window, and the key of the permutation of its rows."""
    slots = np.arange(window * WINDOW_BLOCKS, min((window + 1) * WINDOW_BLOCKS, num_blocks), dtype=np.int64)
    blocks = permute(slots, num_blocks, key)
    # The short block comes last in its window, where it shifts no other; the rows are permuted anyhow.
    return np.concatenate([blocks[blocks != num_blocks - 1], blocks[blocks == num_blocks - 1]]), mix_key(key, window)
