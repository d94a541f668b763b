"""What is known of a running attempt, folded from its events and records as they come."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# One JSON object of an attempt's events.jsonl (has "event") or records.jsonl (has "kind").
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """One moment of a run: the newest of everything that its files told."""

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

    @property
    def seconds_left(self) -> float | None:
        """Until the last step, at the recent pace."""
        if self.total_steps is None or self.ms_per_step is None:
            return None
        return max(self.total_steps - self.step, 0) * self.ms_per_step / 1000


def fold(progress: Progress, entry: Entry) -> Progress:
    """The progress after one more event or record."""
    if entry.get("kind") == "step":
        return replace(
            progress, step=entry["step"], record=entry, ms_per_step=_smoothed(progress.ms_per_step, entry["step_ms"])
        )
    if entry.get("kind") == "evaluation":
        return replace(progress, evaluation=entry)
    return _fold_event(progress, entry)


def _fold_event(progress: Progress, entry: Entry) -> Progress:
    match entry.get("event"):
        case "phase":
            return replace(progress, phase=entry["phase"], doing="")
        case "progress":
            return replace(progress, phase=entry["phase"], doing=_how_far(entry))
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


def _how_far(entry: Entry) -> str:
    """Of a long phase: '65,536 of 1,000,000 rows'."""
    done, total = f"{entry['done']:,}", entry.get("total")
    return f"{entry['what']}: {done} rows" if total is None else f"{entry['what']}: {done} of {total:,} rows"


def _smoothed(old: float | None, new: float) -> float:
    """A step's time, smoothed over the last ten records or so."""
    return new if old is None else 0.8 * old + 0.2 * new
