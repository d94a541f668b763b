"""Zipf-distributed ranks: rank k of n is drawn with probability proportional to 1 / (k + 1) ** exponent."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# At most so many different ranks: the distribution is held in memory (8 bytes each).
MAX_RANKS = 2**24
BUCKETS = 2**16


class Zipf:
    """The distribution over ranks [0, count)."""

    def __init__(self, count: int, exponent: float) -> None:
        weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
        self.probabilities = weights / weights.sum()
        self._cumulated = np.cumsum(self.probabilities)
        self._cumulated[-1] = 1.0
        # The rank at each bucket's begin. Most buckets lie within one rank, which is then known without a search.
        self._guide = np.searchsorted(self._cumulated, np.arange(BUCKETS + 1) / BUCKETS, side="right")
        self._guide = np.minimum(self._guide, count - 1)

    def ranks(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """The rank for each uniform number in [0, 1), by the inverse of the cumulated distribution."""
        buckets = (uniforms * BUCKETS).astype(np.intp)
        ranks: NDArray[np.int64] = self._guide[buckets]
        searched = np.flatnonzero(self._guide[buckets + 1] != ranks)
        ranks[searched] = np.searchsorted(self._cumulated, uniforms[searched], side="right")
        return ranks


@lru_cache(maxsize=64)
def zipf(rows: int, exponent: float) -> Zipf:
    """The distribution for a table of `rows` rows, shared by those who ask for the same."""
    return Zipf(min(rows, MAX_RANKS), exponent)
