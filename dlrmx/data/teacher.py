"""The planted teacher of synthetic data: the true log-odds of a sample.

logit = bias + dense part + id part. The dense part is a projection of the dense columns (91% of its variance) and the
square of another. The id part is the sum of one effect per (table, id), pooled within a bag as the model pools, so that
one vector per row can hold it. Both have the standard deviations of the recipe, in expectation over samples.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.hashing import key_of_text, mix64, mix_key
from dlrmx.data.zipf import Zipf
from dlrmx.recipe.schema import Pooling, Teacher

SQUARE_SHARE = 0.09

Float64s = NDArray[np.float64]


class DenseTeacher:
    """The dense part, of N independent standard normal columns."""

    def __init__(self, num_dense: int, settings: Teacher, seed: int) -> None:
        generator = np.random.Generator(np.random.SFC64(mix_key(key_of_text("dense teacher"), seed)))
        directions = generator.standard_normal((2, num_dense))
        norms = np.sqrt((directions**2).sum(axis=1, keepdims=True))
        self._line, self._square = directions / np.where(norms == 0, 1, norms)
        self._std = settings.dense if num_dense else 0.0

    def logits(self, dense: NDArray[np.float32]) -> Float64s:
        """(n, N) -> (n,)."""
        wide = dense.astype(np.float64)
        line, square = wide @ self._line, wide @ self._square
        # Each term has variance 1, and they are uncorrelated: one is odd, the other even.
        mixed = math.sqrt(1 - SQUARE_SHARE) * line + math.sqrt(SQUARE_SHARE / 2) * (square**2 - 1)
        return np.asarray(self._std * mixed)


class IdEffects:
    """The effects of a table's ids, by rank: mean 0 and variance 1 under their distribution."""

    def __init__(self, table: str, seed: int, distribution: Zipf) -> None:
        self._key = np.uint64(mix_key(key_of_text("id effects"), key_of_text(table), seed))
        probabilities = distribution.probabilities
        mean = square = 0.0
        for first in range(0, len(probabilities), 2**20):
            share = probabilities[first : first + 2**20]
            raw = self._raw(np.arange(first, first + len(share)))
            mean += float(share @ raw)
            square += float(share @ raw**2)
        variance = square - mean**2
        self.constant = distribution.count == 1
        self._mean, self._scale = mean, 0.0 if self.constant else 1 / math.sqrt(variance)

    def __call__(self, ranks: NDArray[np.int64]) -> Float64s:
        """The effect of each rank; nothing is stored."""
        return (self._raw(ranks) - self._mean) * self._scale

    def _raw(self, ranks: NDArray[np.int64]) -> Float64s:
        """Nearly normal: the sum of a hash's four 16-bit parts."""
        parts = mix64(ranks.astype(np.uint64) + self._key).view(np.uint16).reshape(-1, 4)
        return np.asarray(parts.sum(axis=1, dtype=np.int64) / 2**16)


def bag_scale(pooling: Pooling, kind: str, *, weight_square: float) -> float:
    """What makes a bag's pooled effects have variance 1, over bags of Binomial(max, mean / max) ids.

    `weight_square` is the mean square of a weight.
    """
    if kind == "sum":
        return 1 / math.sqrt(pooling.mean * weight_square)
    inverse = sum(probability / count for count, probability in enumerate(_binomial(pooling)) if count)
    return 1 / math.sqrt(inverse * weight_square)


def _binomial(pooling: Pooling) -> list[float]:
    """The probability of each number of ids, 0 to max."""
    top, share = pooling.max, pooling.mean / pooling.max
    if share == 1:
        return [0.0] * top + [1.0]
    choose = [math.lgamma(top + 1) - math.lgamma(k + 1) - math.lgamma(top - k + 1) for k in range(top + 1)]
    return [math.exp(choose[k] + k * math.log(share) + (top - k) * math.log1p(-share)) for k in range(top + 1)]
