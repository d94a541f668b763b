"""Zipf-distributed ranks: rank k of n is drawn with probability proportional to 1 / (k + 1) ** exponent."""

import numpy as np
from numpy.typing import NDArray

BUCKETS = 2**16


class Zipf:
    """The distribution over ranks [0, count): 8 bytes a rank."""

    def __init__(self, count: int, exponent: float) -> None:
        self.count = count
        weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
        self._cumulated = np.cumsum(weights)
        self._cumulated /= self._cumulated[-1]
        # The rank at each bucket's begin. Most buckets lie within one rank, which is then known without a search.
        self._guide = np.searchsorted(self._cumulated, np.arange(BUCKETS + 1) / BUCKETS, side="right")
        self._guide = np.minimum(self._guide, count - 1)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of each rank; computed, for a large table's take as much memory as all else here."""
        return np.diff(self._cumulated, prepend=0.0)

    def ranks(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """The rank for each uniform number in [0, 1), by the inverse of the cumulated distribution."""
        buckets = (uniforms * BUCKETS).astype(np.intp)
        ranks: NDArray[np.int64] = self._guide[buckets]
        searched = np.flatnonzero(self._guide[buckets + 1] != ranks)
        ranks[searched] = np.searchsorted(self._cumulated, uniforms[searched], side="right")
        return ranks
