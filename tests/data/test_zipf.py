"""Zipf ranks against the formula."""

import numpy as np
import pytest

from dlrmx.data.zipf import Zipf


@pytest.mark.parametrize(("count", "exponent"), [(1, 1.0), (2, 0.0), (10, 1.05), (1000, 1.2), (200_000, 0.9)])
def test_each_rank_has_its_share_of_the_uniform_numbers(count: int, exponent: float) -> None:
    uniforms = (np.arange(500_000) + 0.5) / 500_000
    counts = np.bincount(Zipf(count, exponent).ranks(uniforms), minlength=count)
    weights = np.array([(k + 1) ** -exponent for k in range(count)])
    # The inverse of a distribution function, on an even grid: each count is within one of its expectation.
    assert abs(counts - 500_000 * weights / weights.sum()).max() <= 1 + 1e-6


def test_the_largest_uniform_number_is_a_rank() -> None:
    for count in (1, 3, 100_000):
        assert Zipf(count, 1.0).ranks(np.array([0.0, np.nextafter(1.0, 0.0)])).tolist() == [0, count - 1]
