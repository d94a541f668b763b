"""What a run is doing or how it ended, from its files alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dlrmx.runs.claim import is_copy, is_live
from dlrmx.runs.diagnosis import LOST, Cause, first_cause, last_step
from dlrmx.runs.events import first_step, read_events
from dlrmx.runs.layout import STEP_DIR, AttemptPaths, RunPaths
from dlrmx.runs.lines import Line
from dlrmx.runs.run_file import read_run

State = Literal["created", "running", "stopping", "stopped", "done", "failed", "lost"]
ENDED: tuple[State, ...] = ("stopped", "done", "failed", "lost")


@dataclass(frozen=True)
class RunState:
    """A run at one moment.

    state: created (no node process yet), running, stopping (asked to), stopped (saved; can be resumed), done, failed,
    lost (its node process was killed). attempt: 0 before the first. step: the last one that the files tell of.
    saves_failed: in the newest attempt. steps_repeated, nodes_lost: over all attempts. checkpoint: step of the newest
    one, complete but not verified here.
    evaluates: the checkpoint that an evaluation reads; None for a run that trains. is_copy: the run itself, with its
    checkpoints, is out of this machine's sight.
    """

    name: str
    dir: Path
    recipe: str
    state: State
    created: float
    attempt: int
    phase: str | None
    step: int | None
    total_steps: int | None
    checkpoint: int | None
    evaluates: str | None
    saves_failed: int
    steps_repeated: int
    nodes_lost: int
    exit_code: int | None
    reason: str
    first_cause: Cause | None
    is_copy: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def run_state(run: RunPaths) -> RunState:
    """Read the run's state. Raises UnknownRun where `run` is none."""
    # Whether it is live comes first: one that ends while we read has then written its end.
    live = is_live(run)
    fields = read_run(run)
    attempts = run.attempts()
    newest = attempts[-1] if attempts else None
    events = read_events(newest) if newest else []
    state = _state(live, fields, newest)
    ended = state in ENDED
    return RunState(
        name=run.name,
        dir=run.dir,
        recipe=fields["recipe"],
        state=state,
        created=fields["created"],
        attempt=newest.number if newest else 0,
        phase=_newest(events, "phase", "phase"),
        step=last_step(newest) if newest else None,
        total_steps=_newest(events, "begin", "total_steps"),
        checkpoint=newest_checkpoint(run),
        evaluates=fields.get("evaluates"),
        saves_failed=sum(event["event"] == "save_failed" for event in events),
        steps_repeated=_steps_repeated(attempts),
        nodes_lost=_nodes_lost(attempts),
        exit_code=fields.get("exit_code") if ended else None,
        reason=fields.get("reason", "") if ended else "",
        first_cause=_first_cause(attempts, state),
        is_copy=is_copy(run),
    )


def newest_checkpoint(run: RunPaths) -> int | None:
    """Step of the newest published checkpoint; of a copy, of the last one that it was told of."""
    if is_copy(run):
        saved = [event["step"] for attempt in run.attempts() for event in read_events(attempt, "saved")]
        return max(saved, default=None)
    steps = [int(match[1]) for path in run.checkpoints.glob("step-*") if (match := STEP_DIR.match(path.name))]
    return max(steps, default=None)


def _state(live: bool, fields: dict[str, Any], newest: AttemptPaths | None) -> State:
    if live:
        return "stopping" if newest and newest.stop_request.exists() else "running"
    recorded: State = fields["state"]
    return "lost" if recorded == "running" else recorded


def _newest(events: list[Line], name: str, field: str) -> Any:
    return next((event.get(field) for event in reversed(events) if event["event"] == name), None)


def _steps_repeated(attempts: list[AttemptPaths]) -> int:
    """Steps that were done, lost with what followed the last checkpoint, and done again."""
    begun = [(first_step(read_events(attempt, "begin")), last_step(attempt)) for attempt in attempts]
    pairs = zip(begun, begun[1:], strict=False)
    return sum(max(0, end - begin) for (_, end), (begin, _) in pairs if end is not None and begin is not None)


def _nodes_lost(attempts: list[AttemptPaths]) -> int:
    failures = [event for attempt in attempts for event in read_events(attempt, "failed")]
    return sum(event.get("cause") == LOST for event in failures)


def _first_cause(attempts: list[AttemptPaths], state: State) -> Cause | None:
    """Of the newest attempt that failed; of a live run, an earlier attempt's. A run that went well has none."""
    if state in ("done", "stopped", "created"):
        return None
    ended = attempts if state in ENDED else attempts[:-1]
    causes = (first_cause(attempt) for attempt in reversed(ended))
    return next((cause for cause in causes if cause is not None), None)
