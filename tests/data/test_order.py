"""The order of an epoch, held against a plain-Python implementation of its description."""

import numpy as np
import pytest
from numpy.typing import NDArray

from dlrmx.data.order import epoch_rows
from hash_reference import image, key, text_hash


def slow_epoch(num_rows: int, seed: int, epoch: int) -> list[int]:
    """All rows of an epoch: blocks in permuted order, then each window of 64 blocks permuted."""
    stream = key(text_hash("window-v1"), seed, epoch)
    blocks = [range(first, min(first + 4096, num_rows)) for first in range(0, num_rows, 4096)]
    permuted = [blocks[image(slot, len(blocks), stream)] for slot in range(len(blocks))]
    rows: list[int] = []
    for window in range(-(-len(blocks) // 64)):
        inside = permuted[window * 64 : window * 64 + 64]
        stored = [row for block in sorted(inside, key=lambda block: -len(block)) for row in block]
        inner = key(stream, window)
        rows += [stored[image(offset, len(stored), inner)] for offset in range(len(stored))]
    return rows


def shuffled(num_rows: int, start: int, stop: int, *, seed: int = 5, epoch: int = 2) -> NDArray[np.int64]:
    return epoch_rows(num_rows, seed=seed, epoch=epoch, start=start, stop=stop, order="shuffled")


@pytest.mark.parametrize("num_rows", [1, 2, 257, 4095, 4096, 4097, 20_000])
def test_the_order_is_as_described(num_rows: int) -> None:
    assert shuffled(num_rows, 0, num_rows).tolist() == slow_epoch(num_rows, 5, 2)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_short_block_may_fall_into_any_window(seed: int) -> None:
    # Three windows: for some of these seeds the short one is not the last.
    num_rows = 2 * 262_144 + 10 * 4096 + 5
    stream = key(text_hash("window-v1"), seed, 0)
    slot = next(slot for slot in range(139) if image(slot, 139, stream) == 138)
    rows = shuffled(num_rows, 0, num_rows, seed=seed, epoch=0)
    assert np.array_equal(np.sort(rows), np.arange(num_rows))
    position = int(np.flatnonzero(rows == num_rows - 1)[0])
    assert position // 262_144 == slot // 64


@pytest.mark.parametrize("num_rows", [1, 4095, 4096, 262_143, 262_145, 1_000_003])
def test_every_row_once_whatever_the_slices(num_rows: int) -> None:
    whole = shuffled(num_rows, 0, num_rows)
    assert np.array_equal(np.sort(whole), np.arange(num_rows))
    generator = np.random.default_rng(num_rows)
    cuts = [0, *np.sort(generator.integers(0, num_rows + 1, 40)).tolist(), num_rows]
    parts = [shuffled(num_rows, start, stop) for start, stop in zip(cuts, cuts[1:], strict=False)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_the_order_never_changes() -> None:
    assert shuffled(1_000_003, 500_000, 500_004, seed=0, epoch=0).tolist() == [247195, 117553, 950202, 114754]


def test_epochs_and_seeds_differ() -> None:
    first = shuffled(10_000, 0, 100, seed=0, epoch=0)
    assert (first != shuffled(10_000, 0, 100, seed=0, epoch=1)).mean() > 0.9
    assert (first != shuffled(10_000, 0, 100, seed=1, epoch=0)).mean() > 0.9


def test_a_window_is_mixed() -> None:
    # Ranks of neighbours are uncorrelated: |r| of 262,144 independent pairs is below 5 / sqrt(n) = 0.01.
    rows = shuffled(262_144, 0, 262_144).astype(float)
    assert abs(np.corrcoef(rows[:-1], rows[1:])[0, 1]) < 0.01
    # The mean of each 4,096 rows: 12% of a uniform's range / 64; five standard deviations.
    means = rows.reshape(64, 4096).mean(axis=1)
    assert abs(means - 131_071.5).max() < 5 * 262_144 / np.sqrt(12 * 4096)


def test_as_stored_is_the_identity() -> None:
    rows = epoch_rows(10, seed=0, epoch=3, start=4, stop=7, order="as_stored")
    assert rows.tolist() == [4, 5, 6]
    assert rows.dtype == np.int64


def test_an_empty_slice() -> None:
    assert shuffled(10, 4, 4).tolist() == []
    assert shuffled(0, 0, 0).tolist() == []
