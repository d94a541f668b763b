"""Metrics file by file, from scores that come in the order of the files' rows."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from dlrmx.train.histogram import Histogram
from dlrmx.train.metrics import Metrics, binary_metrics

Floats = NDArray[np.float32]

# The scores of a larger file are not kept, but counted into a histogram.
EXACT_ROWS = 100_000_000


class ByFile:
    """`rows`: how many rows each file has, in their order. `metrics` holds those of the files that are over."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self.metrics: dict[str, Metrics] = {}
        self._histogram: Histogram | None = None
        self._files = iter(rows.items())
        self._next()

    def _next(self) -> None:
        """On to the next file that has rows; one without is over at once."""
        self._kept: list[Floats] = []
        self._left = 0
        for file, rows in self._files:
            self._file, self._left = file, rows
            if rows:
                break
            self._end()
        self._histogram = Histogram() if self._left > EXACT_ROWS else None

    def _end(self) -> None:
        found = np.concatenate([np.zeros((0, 2), dtype=np.float32), *self._kept])
        exact = binary_metrics(found[:, 0], found[:, 1])
        self.metrics[self._file] = exact if self._histogram is None else self._histogram.metrics()

    def add(self, scores: Floats) -> None:
        """The logits and labels (n, 2) of the next rows; a label is NaN where there is none."""
        for part in self._parts(scores):
            labelled = part[~np.isnan(part[:, 1])]
            if self._histogram is None:
                self._kept.append(labelled)
            else:
                self._histogram.add(labelled[:, 0], labelled[:, 1])
            self._left -= len(part)
            if self._left == 0:
                self._end()
                self._next()

    def _parts(self, scores: Floats) -> Iterator[Floats]:
        """Cut where files end."""
        while len(scores):
            part, scores = scores[: self._left], scores[self._left :]
            assert len(part), f"{len(scores)} rows more than the files have"
            yield part
