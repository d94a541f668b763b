"""The histogram's AUC against the exact one, and its bins against the order of floats."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dlrmx.train.histogram import Histogram, _bin
from dlrmx.train.metrics import binary_metrics

FLOAT = np.float32


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_auc_is_within_the_bound_that_it_names(scale: float) -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(20_000) < 0.1).astype(FLOAT)
    logits = ((rng.normal(size=20_000) + labels) * scale).astype(FLOAT)
    histogram = Histogram()
    for part in np.array_split(np.arange(20_000), 7):
        histogram.add(logits[part], labels[part])
    found, exact = histogram.metrics(), binary_metrics(logits, labels)
    assert found.auc == pytest.approx(roc_auc_score(labels, logits), abs=found.auc_error)
    assert 0 < found.auc_error < 1e-3
    for name in ("rows", "loss", "ne", "accuracy", "calibration", "label_mean"):
        assert getattr(found, name) == pytest.approx(getattr(exact, name), rel=1e-9), name


def test_bins_keep_the_order_of_floats() -> None:
    scores = np.array([-np.inf, -3e38, -2.0, -1.0, -1e-30, -0.0, 0.0, 1e-30, 0.5, 1.0, 3e38, np.inf], FLOAT)
    bins = _bin(scores)
    assert (np.diff(bins) >= 0).all()
    assert bins.min() >= 0
    assert bins.max() < 1 << 20
    assert len(set(bins.tolist())) >= len(scores) - 1


def test_one_class_or_nothing_leaves_auc_undefined() -> None:
    empty = Histogram().metrics()
    assert (empty.rows, empty.auc, empty.loss, empty.label_mean) == (0, None, None, None)
    positive = Histogram()
    positive.add(np.ones(3, FLOAT), np.ones(3, FLOAT))
    assert (positive.metrics().auc, positive.metrics().ne, positive.metrics().auc_error) == (None, None, 0.0)
