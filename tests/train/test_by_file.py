"""Metrics by file, held to those of each file's rows alone, however the rows come."""

import numpy as np
import pytest

from dlrmx.train import by_file as module
from dlrmx.train.by_file import ByFile
from dlrmx.train.metrics import binary_metrics

ROWS = {"a.csv": 300, "empty.csv": 0, "b.csv": 1, "c.csv": 699}


@pytest.mark.parametrize("step", [1, 64, 1000])
def test_each_file_has_metrics_of_its_own(step: int) -> None:
    random = np.random.default_rng(3)
    scores = np.stack([random.normal(size=1000), random.random(1000) < 0.4], axis=1).astype(np.float32)
    scores[::7, 1] = np.nan
    files = ByFile(ROWS)
    for first in range(0, 1000, step):
        files.add(scores[first : first + step])
    assert list(files.metrics) == list(ROWS)
    first = 0
    for name, count in ROWS.items():
        own = scores[first : first + count]
        own = own[~np.isnan(own[:, 1])]
        assert files.metrics[name] == binary_metrics(own[:, 0], own[:, 1])
        assert files.metrics[name].rows == len(own)
        first += count


def test_a_huge_file_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_ROWS", 500)
    random = np.random.default_rng(4)
    scores = np.stack([random.normal(size=1000), random.random(1000) < 0.4], axis=1).astype(np.float32)
    files = ByFile({"a": 999, "b": 1})
    files.add(scores)
    exact = binary_metrics(scores[:999, 0], scores[:999, 1])
    assert exact.auc is not None
    assert files.metrics["a"].auc == pytest.approx(exact.auc, abs=files.metrics["a"].auc_error)
    assert 0 < files.metrics["a"].auc_error < 0.01
    assert files.metrics["b"].rows == 1
