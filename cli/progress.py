"""What is known of a running attempt, folded from its events and records as they come."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dlrmx.units import format_count, format_duration

# One JSON object of an attempt's events.jsonl (has "event") or records.jsonl (has "kind").
Entry = Mapping[str, Any]

# Before, a pace says little.
LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Pace:
    """Where a long phase began to be followed: what was being done, when (seconds), rows done by then."""

    what: str
    time: float
    done: int


@dataclass(frozen=True)
class Progress:
    """One moment of a run: the newest of everything that its files told.

    since: when the present phase began (None: not told, or over); spent: seconds in each phase before.
    """

    attempt: int
    phase: str = "prepare"
    doing: str = ""
    step: int = 0
    first_step: int = 0
    total_steps: int | None = None
    record: Entry = field(default_factory=dict)
    evaluation: Entry = field(default_factory=dict)
    saved_step: int | None = None
    saves_failed: int = 0
    stopping: bool = False
    ms_per_step: float | None = None
    failure: Entry = field(default_factory=dict)
    pace: Pace | None = None
    since: float | None = None
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float | None:
        """Until the last step, at the recent pace."""
        if self.total_steps is None or self.ms_per_step is None:
            return None
        return max(self.total_steps - self.step, 0) * self.ms_per_step / 1000


def fold(progress: Progress, entry: Entry) -> Progress:
    """The progress after one more event or record."""
    if entry.get("kind") == "step":
        pace = _smoothed(progress.ms_per_step, entry.get("step_ms"))
        return replace(progress, step=entry["step"], record=entry, ms_per_step=pace)
    if entry.get("kind") == "evaluation":
        return replace(progress, evaluation=entry)
    return _fold_event(progress, entry)


def _fold_event(progress: Progress, entry: Entry) -> Progress:
    match entry.get("event"):
        case "phase":
            return replace(_turned(progress, entry), phase=entry["phase"], doing="", since=entry.get("time"))
        case "finished" | "stopped" | "attempt_ended":
            return replace(_turned(progress, entry), since=None)
        case "progress":
            pace = _pace(progress.pace, entry)
            return replace(progress, phase=entry["phase"], doing=_how_far(entry, pace), pace=pace)
        case "begin":
            step = entry["step"]
            return replace(progress, step=step, first_step=step, total_steps=entry.get("total_steps"))
        case "saved":
            return replace(progress, saved_step=entry["step"])
        case "save_failed":
            return replace(progress, saves_failed=progress.saves_failed + 1)
        case "stop_requested":
            return replace(progress, stopping=True)
        case "failed" if entry.get("primary") and not progress.failure:
            return replace(progress, failure=entry)
        case _:
            return progress


def _turned(progress: Progress, entry: Entry) -> Progress:
    """With the time spent in the phase that ends with this entry."""
    if progress.since is None or "time" not in entry:
        return progress
    seconds = progress.spent.get(progress.phase, 0.0) + max(0.0, entry["time"] - progress.since)
    return replace(progress, spent={**progress.spent, progress.phase: seconds})


def phases_text(progress: Progress) -> str:
    """'prepare 2 s, plan 0.1 s, start 9 s'."""
    return ", ".join(f"{phase} {format_duration(seconds)}" for phase, seconds in progress.spent.items())


def _pace(pace: Pace | None, entry: Entry) -> Pace:
    """Since when the present phase is followed."""
    goes_on = pace is not None and pace.what == entry["what"] and pace.done <= entry["done"]
    return pace if pace is not None and goes_on else Pace(entry["what"], entry.get("time", 0.0), entry["done"])


def _how_far(entry: Entry, pace: Pace) -> str:
    """Of a long phase: '65,536 of 1,000,000 rows, 250 K rows/s, 4 s left'."""
    done, total = entry["done"], entry.get("total")
    parts = [f"{entry['what']}: {done:,} rows" if total is None else f"{entry['what']}: {done:,} of {total:,} rows"]
    seconds, rows = entry.get("time", 0.0) - pace.time, done - pace.done
    if seconds >= LEAST_SECONDS and rows:
        parts.append(f"{format_count(rows / seconds)} rows/s")
        if total is not None:
            parts.append(f"{format_duration(max(total - done, 0) * seconds / rows)} left")
    return ", ".join(parts)


def _smoothed(old: float | None, new: float | None) -> float | None:
    """A step's time, smoothed over the last ten records or so."""
    if new is None:
        return old
    return new if old is None else 0.8 * old + 0.2 * new
