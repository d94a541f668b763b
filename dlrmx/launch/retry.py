"""Whether a run that failed is tried again: a pure function of how its attempts ended.

Counted are the attempts of one submission, requeues by a scheduler included. `dlrmx resume` is a new submission, with
a fresh budget: a person has looked at the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dlrmx.units import format_number_of


@dataclass(frozen=True)
class Outcome:
    """How one attempt ended.

    step_begun, step_ended: None where training had not begun. new_checkpoint: a complete one above step_begun.
    cause: None where it came from outside (killed, lost), which says nothing about the next attempt.
    """

    step_begun: int | None
    step_ended: int | None
    new_checkpoint: bool
    cause: str | None


@dataclass(frozen=True)
class Retry:
    """Try again."""


@dataclass(frozen=True)
class GiveUp:
    """Do not try again, and why."""

    reason: str


def decide(outcomes: Sequence[Outcome], *, attempts_without_progress: int, stop_on_repeat: bool) -> Retry | GiveUp:
    """Decide after the last of `outcomes` (oldest first; at least one)."""
    if stop_on_repeat and len(outcomes) > 1 and _repeats(outcomes[-2], outcomes[-1]):
        last = outcomes[-1]
        where = "before the first step" if last.step_ended is None else f"at step {last.step_ended:,}"
        return GiveUp(f"two attempts in a row ended {where} for one cause ({last.cause})")
    futile = 0
    for outcome in reversed(outcomes):
        if outcome.new_checkpoint:
            break
        futile += 1
    if futile >= attempts_without_progress:
        attempts = format_number_of(futile, "attempt")
        return GiveUp(
            f"{attempts}{' in a row' * (futile > 1)} ended without a new checkpoint (retry.attempts_without_progress)"
        )
    return Retry()


def _repeats(before: Outcome, last: Outcome) -> bool:
    return last.cause is not None and (before.step_ended, before.cause) == (last.step_ended, last.cause)
