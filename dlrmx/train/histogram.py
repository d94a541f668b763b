"""Metrics in bounded memory: sums, and histograms of the scores of both classes, for splits too large to sort.

A bin holds the scores that share their 20 leading bits (sign, exponent, 11 bits of mantissa), so its width is 1/2048 of
the score. Pairs in different bins are ordered exactly; pairs within one count half, and are the bound of the error.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from dlrmx.parallel.wire import Wire
from dlrmx.train.metrics import Metrics, binary_entropy

BIN_BITS = 20
SUMS = 4  # rows, loss, probability, right at 0.5


class Histogram:
    """What one rank has seen; `join` adds all ranks up."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, 1 << BIN_BITS), np.int64)  # negatives, positives
        self._sums = np.zeros(SUMS)

    def add(self, logits: NDArray[np.float32], labels: NDArray[np.float32]) -> None:
        """Count logits (n,) and labels (n,) of 0 and 1."""
        z, positive = logits.astype(np.float64), labels > 0.5
        bins = _bin(logits)
        for row, mine in enumerate((~positive, positive)):
            self._counts[row] += np.bincount(bins[mine], minlength=1 << BIN_BITS)
        loss = np.logaddexp(0.0, z) - z * positive
        probability = np.exp(-np.logaddexp(0.0, -z))
        self._sums += [len(z), loss.sum(), probability.sum(), np.count_nonzero((z > 0) == positive)]

    def join(self, wire: Wire) -> Metrics:
        """Metrics of what all ranks have seen, on every rank. Collective."""
        counts, sums = torch.from_numpy(self._counts).view(-1), torch.from_numpy(self._sums)
        for tensor in (counts, sums):
            wire.all_reduce("metrics", tensor).wait()
        return self.metrics()

    def metrics(self) -> Metrics:
        """Metrics of what was added; `auc_error` bounds what the bins hide."""
        rows, loss, probability, right = self._sums.tolist()
        negatives, positives = (int(counts.sum()) for counts in self._counts)
        mean = positives / rows if rows else 0.0
        entropy = binary_entropy(mean)
        auc, error = self._auc(negatives, positives)
        return Metrics(
            rows=int(rows),
            loss=loss / rows if rows else None,
            ne=loss / rows / entropy if entropy > 0 else None,
            auc=auc,
            accuracy=right / rows if rows else None,
            calibration=probability / positives if positives else None,
            label_mean=mean if rows else None,
            auc_error=error,
        )

    def _auc(self, negatives: int, positives: int) -> tuple[float | None, float]:
        if negatives == 0 or positives == 0:
            return None, 0.0
        low, high = self._counts.astype(np.float64)
        below = np.cumsum(low) - low
        pairs = float(negatives) * positives
        within = float((high * low).sum()) / 2
        return (float((high * below).sum()) + within) / pairs, within / pairs


def _bin(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """A number that grows with the score: its bits, with the order of negative floats turned round."""
    bits = np.ascontiguousarray(scores, np.float32).view(np.int32).astype(np.int64)
    ordered = np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)
    return (ordered + (1 << 31)) >> (32 - BIN_BITS)
