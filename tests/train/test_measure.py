"""Lines through measured times."""

import pytest

from dlrmx.train.measure import fit


def test_fixed_part_and_rate_are_found() -> None:
    line = fit([(work, 1e-4 + work / 2e9) for work in (1e3, 1e5, 1e7, 1e8)])
    assert line.fixed_s == pytest.approx(1e-4)
    assert line.rate == pytest.approx(2e9)


def test_a_fixed_part_is_never_negative() -> None:
    line = fit([(1e6, 1e-4), (2e6, 4e-4)])  # caches make small work faster
    assert line.fixed_s == 0
    assert 2e6 / 4e-4 < line.rate < 1e6 / 1e-4


def test_times_that_do_not_grow_have_no_rate() -> None:
    assert fit([(1e3, 2e-4), (2e3, 2e-4), (4e3, 2e-4)]).rate > 1e9
