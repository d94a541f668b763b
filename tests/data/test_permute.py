"""The bijection, held against a plain-Python implementation of its description and against pinned values."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dlrmx.data.permute import permute, permute_ids, restore_ids
from hash_reference import MASK, image


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 64, 1000, 4096, 4097])
@pytest.mark.parametrize("key", [0, 12345, MASK])
def test_every_value_is_met_once_as_described(size: int, key: int) -> None:
    values = np.arange(size)
    images = permute(values, size, key)
    assert sorted(images.tolist()) == list(range(size))
    assert images.tolist() == [image(x, size, key) for x in range(size)]
    assert permute(images, size, key, inverse=True).tolist() == values.tolist()


@settings(deadline=None)
@given(st.integers(1, 2**40 - 1), st.integers(0, MASK), st.data())
def test_any_size_and_its_inverse(size: int, key: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, size - 1))
    there = permute(np.array([value]), size, key)
    assert 0 <= there[0] < size
    assert there[0] == image(value, size, key)
    assert permute(there, size, key, inverse=True)[0] == value


def test_where_ids_lie_never_changes() -> None:
    ids = np.array([0, 1, 2, 999])
    assert permute_ids(ids, 1000).tolist() == [58, 114, 647, 282]
    assert restore_ids(permute_ids(ids, 1000), 1000).tolist() == ids.tolist()
    large = np.array([0, 1, 10**9 - 1])
    assert permute_ids(large, 10**9).tolist() == [512331592, 603595719, 885934212]


def test_the_shape_is_kept() -> None:
    assert permute_ids(np.arange(6).reshape(2, 3), 10).shape == (2, 3)
    assert permute_ids(np.zeros(0, dtype=np.int64), 10).shape == (0,)


def test_the_first_ids_spread_over_the_rows() -> None:
    # The most frequent ids are the first: they must not fill one row range.
    ranges = permute_ids(np.arange(64_000), 10**6) // (10**6 // 64)
    counts = np.bincount(ranges, minlength=64)
    # 1,000 expected in each; five standard deviations of a binomial.
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)
