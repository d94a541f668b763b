"""What a run is doing or how it ended, from its files alone."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dlrmx.runs.claim import is_copy, is_live
from dlrmx.runs.diagnosis import LOST, Cause, first_cause, last_step
from dlrmx.runs.events import first_step, read_events
from dlrmx.runs.layout import STEP_DIR, AttemptPaths, RunPaths
from dlrmx.runs.lines import Line
from dlrmx.runs.run_file import RunFile, read_run

State = Literal["created", "waiting", "running", "stopping", "stopped", "done", "failed", "lost"]
ENDED: tuple[State, ...] = ("stopped", "done", "failed", "lost")


@dataclass(frozen=True)
class Job:
    """A run's job on a cluster.

    app: what the scheduler calls it, "" where its submission was not seen to its end. cluster: the profile's name, ""
    where it had none. state: submitted, pending, running, succeeded, failed, cancelled or unknown, as the scheduler
    says; "" where it was not asked or does not know the job. words: why it waits, how it failed.
    """

    scheduler: str
    app: str
    cluster: str = ""
    state: str = ""
    words: str = ""

    @property
    def waits(self) -> bool:
        return self.state in ("submitted", "pending")

    @property
    def ended(self) -> bool:
        return self.state in ("succeeded", "failed", "cancelled")

    @property
    def lives(self) -> bool:
        return self.state != "" and not self.ended

    @property
    def called(self) -> str:
        return f"job {self.app}" if self.app else "its job"


# From the moment that a run is made until its node process holds it: a second or two.
BEGIN_S = 60.0


@dataclass(frozen=True)
class RunState:
    """A run at one moment.

    state: created (no node process yet), waiting (for its cluster's job to be started, or started again), running,
    stopping (asked to), stopped (it can be resumed), done, failed, lost (its node process was killed). attempt: 0
    before the first. step: the last one that the files tell of. saves_failed: in the newest attempt. steps_repeated,
    nodes_lost: over all attempts. checkpoint: step of the newest one, complete but not verified here. reason: how it
    ended or why it waits; job: None for a run of this machine; hosts: of the newest attempt's workers.
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
    job: Job | None = None
    hosts: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def run_state(run: RunPaths, job: Job | None = None) -> RunState:
    """Read the run's state; `job`: what its scheduler says, where that was asked. UnknownRun where `run` is none."""
    # Whether it is live comes first: one that ends while we read has then written its end.
    live = is_live(run)
    fields = read_run(run)
    attempts = run.attempts()
    newest = attempts[-1] if attempts else None
    events = read_events(newest) if newest else []
    job = job or noted_job(fields)
    state = _state(live, fields, newest, job)
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
        reason=fields.get("reason", "") if ended or state == "waiting" else "",
        first_cause=_first_cause(attempts, state),
        is_copy=is_copy(run),
        job=job,
        hosts=_hosts(events),
    )


def noted_job(fields: RunFile) -> Job | None:
    """The job that a run was last submitted as, by its run.json; None for one of this machine."""
    job = fields.get("job")
    if not isinstance(job, dict) or not all(isinstance(job.get(key), str) for key in ("scheduler", "app")):
        return None
    cluster = fields.get("cluster")
    return Job(job["scheduler"], job["app"], cluster if isinstance(cluster, str) else "")


def never_begun(run: RunPaths) -> bool:
    """Whether a run without a cluster's job waits for a node process that would have come long ago."""
    fields = read_run(run)
    if fields["state"] != "created" or fields.get("job") is not None or is_copy(run) or is_live(run):
        return False
    return time.time() > run.run.stat().st_mtime + BEGIN_S and read_run(run)["state"] == "created"


def newest_checkpoint(run: RunPaths) -> int | None:
    """Step of the newest published checkpoint; of a copy, of the last one that it was told of."""
    if is_copy(run):
        saved = [event["step"] for attempt in run.attempts() for event in read_events(attempt, "saved")]
        return max(saved, default=None)
    steps = [int(match[1]) for path in run.checkpoints.glob("step-*") if (match := STEP_DIR.match(path.name))]
    return max(steps, default=None)


def _state(live: bool, fields: RunFile, newest: AttemptPaths | None, job: Job | None) -> State:
    if live:
        return "stopping" if newest and newest.stop_request.exists() else "running"
    recorded: State = fields["state"]
    if job is not None and _goes_on(recorded, job):
        return "stopping" if fields.get("cancelled") == job.app else "waiting"
    return "lost" if recorded == "running" else recorded


def _goes_on(recorded: State, job: Job) -> bool:
    """Whether the job of a run that nobody drives now may start it (again), as far as is known."""
    match recorded:
        case "created":
            return not job.ended
        case "running":
            return job.lives
        case "stopped":
            return job.waits
        case _:
            return False


def _hosts(events: list[Line]) -> tuple[str, ...]:
    """Where an attempt's workers were, in the order of their ranks."""
    started = [event for event in events if event["event"] == "worker_started" and isinstance(event.get("rank"), int)]
    return tuple(dict.fromkeys(event["host"] for event in sorted(started, key=lambda event: event["rank"])))


def _newest(events: list[Line], name: str, field: str) -> Any:
    return next((event.get(field) for event in reversed(events) if event["event"] == name), None)


def _steps_repeated(attempts: list[AttemptPaths]) -> int:
    """Steps that were done, lost with what followed the last checkpoint, and done again."""
    begun = [(first_step(read_events(attempt, "begin")), last_step(attempt)) for attempt in attempts]
    pairs = zip(begun, begun[1:], strict=False)
    return sum(max(0, end - begin) for (_, end), (begin, _) in pairs if end is not None and begin is not None)


def _nodes_lost(attempts: list[AttemptPaths]) -> int:
    """Those that went away by themselves: a scheduler that ends a job signals first, and takes all nodes' processes."""
    found = 0
    for attempt in attempts:
        events = read_events(attempt, "failed", "stop_requested")
        signalled = [event["time"] for event in events if str(event.get("by", "")).startswith("SIG")]
        ending = min(signalled, default=float("inf"))
        found += sum(event.get("cause") == LOST and event["time"] < ending for event in events)
    return found


def _first_cause(attempts: list[AttemptPaths], state: State) -> Cause | None:
    """Of the newest attempt that failed; of a live run, an earlier attempt's. A run that went well has none.

    Of a run that waits, why its newest attempt ended.
    """
    if state in ("done", "stopped", "created"):
        return None
    if state == "waiting":
        return first_cause(attempts[-1]) if attempts else None
    ended = attempts if state in ENDED else attempts[:-1]
    causes = (first_cause(attempt) for attempt in reversed(ended))
    return next((cause for cause in causes if cause is not None), None)
