"""Metrics against scikit-learn on the joined scores, and against numbers worked out by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from dlrmx.train.metrics import auc, binary_entropy, binary_metrics

FLOAT = np.float32


@pytest.mark.parametrize("distinct", [2, 5, 1000, 10**9])
def test_auc_equals_scikit_learn_with_and_without_ties(distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    labels = (rng.random(5000) < 0.2).astype(FLOAT)
    scores = (rng.integers(0, distinct, 5000) / distinct + labels * 0.1).astype(FLOAT)
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_auc_by_hand() -> None:
    # Positives 3 and 1, negatives 2 and 1: pairs (3>2, 3>1, 1<2, 1=1) = (1 + 1 + 0 + 1/2) / 4
    assert auc(np.array([3, 1, 2, 1], FLOAT), np.array([1, 1, 0, 0], FLOAT)) == 2.5 / 4


def test_metrics_equal_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(3000) < 0.3).astype(FLOAT)
    logits = (rng.normal(size=3000) * 2 + labels).astype(FLOAT)
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    found = binary_metrics(logits, labels)
    mean = labels.astype(np.float64).mean()
    entropy = -(mean * math.log(mean) + (1 - mean) * math.log(1 - mean))
    assert found.rows == 3000
    assert found.loss == pytest.approx(log_loss(labels, probabilities), rel=1e-9)
    assert found.ne == pytest.approx(log_loss(labels, probabilities) / entropy, rel=1e-9)
    assert found.accuracy == pytest.approx(accuracy_score(labels, logits > 0))
    assert found.calibration == pytest.approx(probabilities.mean() / mean)
    assert found.label_mean == pytest.approx(mean)


def test_a_prediction_of_the_label_mean_has_ne_1() -> None:
    labels = np.array([1, 0, 0, 0], FLOAT)
    logits = np.full(4, math.log(0.25 / 0.75), FLOAT)
    assert binary_metrics(logits, labels).ne == pytest.approx(1.0, rel=1e-6)


def test_huge_logits_give_a_finite_loss() -> None:
    found = binary_metrics(np.array([1e4, -1e4], FLOAT), np.array([0, 1], FLOAT))
    assert found.loss == 1e4


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_leaves_auc_and_ne_undefined(label: int) -> None:
    found = binary_metrics(np.array([0.5, -0.5], FLOAT), np.full(2, label, FLOAT))
    assert (found.auc, found.ne) == (None, None)
    assert found.loss is not None
    assert found.label_mean == label
    assert (found.calibration is None) == (label == 0)


def test_no_rows_leave_everything_undefined() -> None:
    found = binary_metrics(np.empty(0, FLOAT), np.empty(0, FLOAT))
    assert found.rows == 0
    assert {value for name, value in found.as_dict().items() if name not in ("rows", "auc_error")} == {None}


def test_entropy_by_hand() -> None:
    assert binary_entropy(0.5) == pytest.approx(math.log(2))
    assert binary_entropy(0.0) == binary_entropy(1.0) == 0.0
