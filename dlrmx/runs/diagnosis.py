"""Why an attempt failed: the fault that came first, not the ones that it caused elsewhere."""

from dataclasses import dataclass
from typing import Any

from dlrmx.runs.events import read_events
from dlrmx.runs.layout import AttemptPaths
from dlrmx.runs.lines import Line, last_line

LOST = "lost"
KILLED = "killed"
# Causes that came from outside: they say nothing about what the next attempt will meet.
EXTERNAL = (LOST, KILLED)


@dataclass(frozen=True)
class Cause:
    """One failure. `rank` is None where no worker is to blame; `step` where training had not begun."""

    rank: int | None
    host: str
    step: int | None
    cause: str
    message: str
    exit_code: int = 1

    def __str__(self) -> str:
        who = f"{'the node process' if self.rank is None else f'rank {self.rank}'} on {self.host}"
        when = "" if self.step is None else f" at step {self.step:,}"
        if self.cause in EXTERNAL and self.message:  # the message says who it was and that it was killed or lost
            return f"{self.host if self.rank is None else who}{when}: {self.message}"
        return f"{who}{when}: {self.cause}" + (f": {self.message}" if self.message else "")


def first_cause(attempt: AttemptPaths) -> Cause | None:
    """The earliest primary failure; else the earliest secondary one; else that the attempt ended without a word.

    None where nothing failed. Ask for an attempt that has ended: of a live one, only its `failed` events count.
    """
    events = read_events(attempt)
    failures = [event for event in events if event["event"] == "failed"]
    if failures:
        return _cause(min(failures, key=lambda event: (not event.get("primary", True), event["time"])))
    if not events or any(event["event"] in ("attempt_ended", "finished", "stopped") for event in events):
        return None
    claimed = events[0]
    message = f"its node process (pid {claimed['pid']}) was killed or its machine went down"
    return Cause(None, claimed["host"], last_step(attempt), LOST, message)


def last_step(attempt: AttemptPaths) -> int | None:
    """The last step that the attempt tells of, None where training had not begun."""
    lines: list[Line] = read_events(attempt)
    if record := last_line(attempt.records):
        lines.append(record)
    return max((line["step"] for line in lines if isinstance(line.get("step"), int)), default=None)


def _cause(event: dict[str, Any]) -> Cause:
    return Cause(
        rank=event.get("rank"),
        host=event["host"],
        step=event.get("step"),
        cause=event.get("cause", "failed"),
        message=event.get("message", ""),
        exit_code=event.get("exit_code", 1),
    )
