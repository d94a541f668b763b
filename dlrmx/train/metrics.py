"""Metrics of a binary classifier, from the logits and labels of all ranks joined. numpy only.

A value that is undefined for the given rows (no rows, one class only) is None, never 0 or NaN.
"""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Metrics:
    """loss: mean binary cross-entropy in nats. ne: loss / entropy of the label mean (He et al. 2014, 'Practical
    lessons from predicting clicks on ads'). auc: area under the ROC curve, ties counted half. accuracy: at
    probability 0.5. calibration: mean predicted probability / label mean. auc_error: how far `auc` may be off; 0 where
    it is exact."""

    rows: int
    loss: float | None
    ne: float | None
    auc: float | None
    accuracy: float | None
    calibration: float | None
    label_mean: float | None
    auc_error: float = 0.0

    def as_dict(self) -> dict[str, int | float | None]:
        return asdict(self)


def binary_metrics(logits: Floats, labels: Floats) -> Metrics:
    """All metrics of logits (n,) against labels (n,) of 0 and 1; logits, not probabilities."""
    if len(labels) == 0:
        return Metrics(0, None, None, None, None, None, None)
    z, y = logits.astype(np.float64), labels.astype(np.float64)
    probability = np.exp(-np.logaddexp(0.0, -z))
    loss = float(np.mean(np.logaddexp(0.0, z) - z * y))
    mean = float(y.mean())
    entropy = binary_entropy(mean)
    return Metrics(
        rows=len(y),
        loss=loss,
        ne=loss / entropy if entropy > 0 else None,
        auc=auc(logits, labels),
        accuracy=float(np.mean((z > 0) == (y > 0.5))),
        calibration=float(probability.mean()) / mean if mean > 0 else None,
        label_mean=mean,
    )


def auc(scores: Floats, labels: Floats) -> float | None:
    """Exact area under the ROC curve: the chance that a positive outscores a negative, ties half; None for one class.

    By the ranks' sum (Mann-Whitney U), which equals the area under the curve with ties drawn as diagonals.
    """
    positive = labels > 0.5
    num_positive = int(positive.sum())
    num_negative = len(labels) - num_positive
    if num_positive == 0 or num_negative == 0:
        return None
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.append(np.flatnonzero(first), len(ordered))
    middles = (starts[:-1] + starts[1:] + 1) / 2  # mean of the ranks start + 1 .. end
    ranks = middles[np.cumsum(first) - 1]
    rank_sum = float(ranks[positive[order]].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


def binary_entropy(mean: float) -> float:
    """Entropy in nats of a coin that shows 1 with chance `mean`; 0 where it always shows the same."""
    if mean <= 0 or mean >= 1:
        return 0.0
    return float(-(mean * np.log(mean) + (1 - mean) * np.log(1 - mean)))
