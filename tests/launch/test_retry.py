import pytest

from dlrmx.launch.retry import GiveUp, Outcome, Retry, decide


def ended(step: int | None, *, progress: bool = False, cause: str | None = None) -> Outcome:
    return Outcome(step_begun=0, step_ended=step, new_checkpoint=progress, cause=cause)


def reason(*outcomes: Outcome, budget: int = 3, stop_on_repeat: bool = True) -> str | None:
    """Why no further attempt, None for a retry."""
    decision = decide(outcomes, attempts_without_progress=budget, stop_on_repeat=stop_on_repeat)
    return decision.reason if isinstance(decision, GiveUp) else None


def test_one_failure_is_tried_again() -> None:
    assert decide([ended(5, cause="NaN")], attempts_without_progress=3, stop_on_repeat=True) == Retry()


def test_a_budget_of_one_is_spent_at_once() -> None:
    assert reason(ended(5), budget=1) == "1 attempt ended without a new checkpoint (retry.attempts_without_progress)"


def test_only_attempts_in_a_row_count() -> None:
    futile, progress = ended(5), ended(5, progress=True)
    assert reason(futile, futile) is None
    assert "3 attempts in a row" in (reason(futile, futile, futile) or "")
    assert reason(futile, futile, progress, futile, futile) is None
    assert "3 attempts in a row" in (reason(progress, futile, futile, futile) or "")


def test_progress_is_free() -> None:
    assert reason(*[ended(step, progress=True) for step in range(100)], budget=1) is None


@pytest.mark.parametrize("step", [None, 0, 50])
def test_the_same_step_and_cause_twice_is_enough(step: int | None) -> None:
    again = ended(step, progress=True, cause="NaN")
    assert "two attempts in a row ended" in (reason(again, again) or "")
    assert reason(again, again, stop_on_repeat=False) is None


def test_another_step_or_another_cause_is_no_repeat() -> None:
    assert reason(ended(50, cause="NaN"), ended(51, cause="NaN")) is None
    assert reason(ended(50, cause="NaN"), ended(50, cause="SIGSEGV")) is None
    assert reason(ended(50, cause="NaN"), ended(60), ended(50, cause="NaN"), budget=9) is None


def test_what_came_from_outside_does_not_repeat() -> None:
    assert reason(ended(50), ended(50)) is None
