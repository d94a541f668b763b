"""What a step took, beside what was predicted when it was planned: time, and memory on the fullest rank."""

import json
import statistics
from dataclasses import dataclass
from typing import Any

from dlrmx.runs.events import read_events
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.lines import Line, read_lines
from dlrmx.runs.records import is_record


@dataclass(frozen=True)
class Costs:
    """Of the newest attempt that trained; None where not known. Bytes are those beyond a worker that built nothing."""

    step_s: float | None = None
    predicted_step_s: float | None = None
    memory_bytes: int | None = None
    predicted_memory_bytes: int | None = None

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self.step_s is not None


def read_costs(run: RunPaths) -> Costs:
    """The costs of the run's newest attempt with a step record; a step is the median over its records."""
    for attempt in reversed(run.attempts()):
        steps = [line for line in read_lines(attempt.records) if is_record(line) and line["kind"] == "step"]
        if steps:
            return _of(attempt, steps)
    return Costs()


def _of(attempt: AttemptPaths, steps: list[Line]) -> Costs:
    predicted = _predicted(attempt)
    times = [step["step_ms"] / 1000 for step in steps if isinstance(step.get("step_ms"), int | float)]
    held = [step["rss_bytes"] for step in steps if isinstance(step.get("rss_bytes"), int)]
    started = [event.get("rss_bytes") for event in read_events(attempt, "worker_started")]
    before = [size for size in started if isinstance(size, int)]
    return Costs(
        step_s=statistics.median(times) if times else None,
        predicted_step_s=predicted.get("step_s"),
        memory_bytes=max(held) - max(before) if held and before else None,
        predicted_memory_bytes=predicted.get("memory_bytes"),
    )


def _predicted(attempt: AttemptPaths) -> dict[str, Any]:
    """What the attempt's job says was predicted; nothing where an older dlrmx wrote it."""
    try:
        found = json.loads(attempt.job.read_bytes()).get("predicted")
    except (OSError, ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}
