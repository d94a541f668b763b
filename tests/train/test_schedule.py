"""The schedule's factors, by hand."""

import pytest

from dlrmx.recipe.schema import Constant, WarmupHoldDecay
from dlrmx.train.schedule import rate_factor


def test_constant_is_one() -> None:
    assert [rate_factor(Constant(), step) for step in (0, 1, 10**9)] == [1.0, 1.0, 1.0]


def test_warm_up_hold_and_decay() -> None:
    schedule = WarmupHoldDecay(kind="warmup_hold_decay", warmup=4, hold=2, decay=4, power=2.0, floor=1e-7)
    factors = [rate_factor(schedule, step) for step in range(12)]
    expected = [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, (3 / 4) ** 2, (2 / 4) ** 2, (1 / 4) ** 2, 1e-7, 1e-7]
    assert factors == pytest.approx(expected)


def test_without_a_decay_the_rate_is_held_for_ever() -> None:
    schedule = WarmupHoldDecay(kind="warmup_hold_decay", warmup=2)
    assert rate_factor(schedule, 10**9) == 1.0
