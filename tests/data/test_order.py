"""The order of an epoch, held against a plain-Python implementation of its description, and against a full shuffle."""

from functools import cached_property

import numpy as np
import pytest
from numpy.typing import NDArray

from dlrmx.data.order import shuffled_rows
from hash_reference import GOLDEN, MASK, key, mix, text_hash


def draw(x: int, stream: int, size: int) -> int:
    return (mix((x + stream) & MASK) >> 32) * size >> 32


class SlowEpoch:
    """ "strata-v1", one row at a time."""

    def __init__(self, num_rows: int, seed: int, epoch: int) -> None:
        self.num_rows, self.key = num_rows, key(text_hash("strata-v1"), seed, epoch)
        self.blocks = -(-num_rows // 64)
        self.num_windows = -(-self.blocks // 16_384)

    @cached_property
    def windows(self) -> list[list[int]]:
        """The blocks of each window."""
        size = self.num_windows
        turns = [draw(stratum, self.key, size) for stratum in range(-(-self.blocks // size))]
        of = [[s * size + (turn + window) % size for s, turn in enumerate(turns)] for window in range(size)]
        return [[block for block in blocks if block < self.blocks] for blocks in of]

    def rows_of(self, window: int) -> int:
        return sum(min(64, self.num_rows - block * 64) for block in self.windows[window])

    def row(self, position: int) -> int:
        window = 0
        while position >= self.rows_of(window):
            position -= self.rows_of(window)
            window += 1
        place = self.image(position, self.rows_of(window), key(self.key, window))
        return self.windows[window][place // 64] * 64 + place % 64

    @staticmethod
    def image(x: int, size: int, stream: int) -> int:
        columns = 2 ** -(-(size - 1).bit_length() // 2)
        height = -(-size // columns)
        while True:
            i, j = divmod(x, columns)
            for number in range(4):
                inner = stream + (number + 1) * GOLDEN
                if number % 2 == 0:
                    i = (i + draw(j, inner, height)) % height
                else:
                    j = (j + draw(i, inner, columns)) % columns
            x = i * columns + j
            if x < size:
                return x


def shuffled(num_rows: int, start: int, stop: int, *, seed: int = 5, epoch: int = 2) -> NDArray[np.int64]:
    return shuffled_rows(num_rows, seed=seed, epoch=epoch, start=start, stop=stop)


@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 63, 64, 65, 257, 4097, 10_000])
def test_the_order_is_as_described(num_rows: int) -> None:
    slow = SlowEpoch(num_rows, 5, 2)
    assert shuffled(num_rows, 0, num_rows).tolist() == [slow.row(position) for position in range(num_rows)]


# Two and three windows: of equal size, with a short block, with a last stratum that lacks blocks.
@pytest.mark.parametrize("num_rows", [2**21, 2**20 + 1, 2**20 + 129, 2**21 + 64 * 7 + 5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_several_windows_are_as_described(num_rows: int, seed: int) -> None:
    slow = SlowEpoch(num_rows, seed, 0)
    borders = np.cumsum([slow.rows_of(window) for window in range(slow.num_windows)])
    assert borders[-1] == num_rows
    for border in borders:
        first, last = border - 3, min(border + 3, num_rows)
        expected = [slow.row(position) for position in range(first, last)]
        assert shuffled(num_rows, first, last, seed=seed, epoch=0).tolist() == expected


@pytest.mark.parametrize("num_rows", [1, 4095, 65_537, 2**20, 2**20 + 63, 3_000_003])
def test_every_row_once_whatever_the_slices(num_rows: int) -> None:
    whole = shuffled(num_rows, 0, num_rows)
    assert np.array_equal(np.sort(whole), np.arange(num_rows))
    generator = np.random.default_rng(num_rows)
    cuts = [0, *np.sort(generator.integers(0, num_rows + 1, 40)).tolist(), num_rows]
    parts = [shuffled(num_rows, start, stop) for start, stop in zip(cuts, cuts[1:], strict=False)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_the_order_never_changes() -> None:
    assert shuffled(3_000_003, 1_500_000, 1_500_004, seed=0, epoch=0).tolist() == [1164539, 753185, 673222, 1061270]


def test_epochs_and_seeds_differ() -> None:
    first = shuffled(10_000, 0, 100, seed=0, epoch=0)
    assert (first != shuffled(10_000, 0, 100, seed=0, epoch=1)).mean() > 0.9
    assert (first != shuffled(10_000, 0, 100, seed=1, epoch=0)).mean() > 0.9


@pytest.mark.parametrize("num_rows", [2, 3, 4, 10])
def test_few_rows_come_in_every_order(num_rows: int) -> None:
    seeds = range(1000)
    firsts = np.array([shuffled(num_rows, 0, 1, seed=seed)[0] for seed in seeds])
    counts = np.bincount(firsts, minlength=num_rows)
    # Each row comes first equally often, within five standard deviations of a binomial.
    assert abs(counts - len(seeds) / num_rows).max() < 5 * np.sqrt(len(seeds) / num_rows)


def test_neighbours_are_unrelated() -> None:
    # |r| of 2**20 independent pairs is below 5 / sqrt(n) = 0.005.
    rows = shuffled(2**20, 0, 2**20).astype(float)
    for distance in (1, 2, 1024, 2048):
        assert abs(np.corrcoef(rows[:-distance], rows[distance:])[0, 1]) < 0.005


def time_ordered_labels(rows: int) -> NDArray[np.float64]:
    """Labels of 30 days of which the rate goes from 0.1 to 0.4, and by a third up and down each day."""
    time = np.linspace(0, 1, rows)
    rate = (0.1 + 0.3 * time) * (1 + np.sin(60 * np.pi * time) / 3)
    return (np.random.default_rng(7).random(rows) < rate).astype(np.float64)


@pytest.mark.parametrize(("rows", "epochs"), [(1_000_000, 100), (3_000_000, 40)])
def test_the_mean_label_of_a_batch_varies_as_after_a_full_shuffle(rows: int, epochs: int) -> None:
    labels = time_ordered_labels(rows)
    batches = (2048, 16_384, 65_536)
    squares: dict[int, list[float]] = {batch: [] for batch in batches}
    for epoch in range(epochs):
        parts = [shuffled(rows, at, min(at + 65_536, rows), epoch=epoch) for at in range(0, rows, 65_536)]
        met = labels[np.concatenate(parts)]
        for batch in batches:
            means = met[: rows // batch * batch].reshape(-1, batch).mean(axis=1)
            squares[batch] += ((means - labels.mean()) ** 2).tolist()
    for batch in batches:
        # The variance of the mean of a sample without replacement; it is known here to 4% or better.
        expected = labels.var(ddof=1) / batch * (1 - batch / rows)
        assert np.mean(squares[batch]) / expected == pytest.approx(1, abs=0.1), batch


def test_an_empty_slice() -> None:
    assert shuffled(10, 4, 4).tolist() == []
    assert shuffled(0, 0, 0).tolist() == []
