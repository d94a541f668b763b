"""The node process: the one command of every job, `python -m dlrmx.launch.node`, with the job in DLRMX_JOB.

It takes the run's lock, opens attempt after attempt, and writes down how the run ended. Exit codes: 0 done, 75 stopped
and saved, 1 failed, 2 bad input or no good checkpoint, 130 killed on request.
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dlrmx import __version__
from dlrmx.errors import DlrmxError, InputError
from dlrmx.launch.agent import Watch, agent_env, start_agent
from dlrmx.launch.inputs import parse_recipe, write_inputs
from dlrmx.launch.job import JOB_VARIABLE, JobSpec
from dlrmx.launch.local import PARENT_VARIABLE
from dlrmx.launch.outcome import note_silent_death, outcome_of
from dlrmx.launch.retry import GiveUp, decide
from dlrmx.launch.stopping import StopRequested, StopSignals
from dlrmx.recipe.clusters import workers_per_node
from dlrmx.recipe.fingerprint import changed_fixed, fingerprint
from dlrmx.recipe.load import read_frozen
from dlrmx.recipe.profiles import Profile, read_profile
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.claim import claim_attempt, create_run, hold
from dlrmx.runs.diagnosis import first_cause, last_step
from dlrmx.runs.events import append_event, read_events
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.registry import register
from dlrmx.runs.run_file import read_run, update_run

WORKER = ("-m", "dlrmx.train.worker")
STOPPED = 75  # EX_TEMPFAIL: a scheduler's script requeues on it
KILLED = 130


@dataclass(frozen=True)
class End:
    """How a run, or one attempt of it, ended."""

    state: Literal["done", "stopped", "failed"]
    exit_code: int
    reason: str = ""


@dataclass(frozen=True)
class Node:
    """One submission on this machine: what all of its attempts share."""

    spec: JobSpec
    recipe: Recipe
    profile: Profile
    run: RunPaths
    signals: StopSignals
    worker: Sequence[str]


def run_node(spec: JobSpec, worker: Sequence[str] = WORKER, parent: int | None = None) -> int:
    """Drive the run to its end; returns the exit code. `worker`: what torch.distributed.run is to start.

    Raises InputError, with nothing changed, where the run is another's: running already, or of another recipe.
    """
    signals = StopSignals(parent)
    signals.install()
    recipe = parse_recipe(spec.recipe)
    run = _open_run(spec, recipe)
    with hold(run):
        if read_run(run)["state"] == "done" and _begun(spec, run):
            return 0  # the job was started once more after its end
        update_run(run, state="created")
        register(run)
        end = End("failed", 1, f"a fault in dlrmx: see {run.launch_log}")
        try:
            profile = read_profile(spec.profile)
            end = _drive(Node(spec, recipe, profile, run, signals, worker))
        except (DlrmxError, OSError) as error:
            end = End("failed", error.exit_code if isinstance(error, DlrmxError) else 1, str(error))
            print(error, file=sys.stderr, flush=True)
        finally:
            update_run(run, state=end.state, exit_code=end.exit_code, reason=end.reason, ended=time.time())
    return end.exit_code


def _open_run(spec: JobSpec, recipe: Recipe) -> RunPaths:
    """The job's run, created where the launcher could not reach its root. InputError where it is another recipe's."""
    run = RunPaths(Path(spec.root) / spec.run)
    mine = fingerprint(recipe)
    if not run.run.exists():
        return create_run(Path(spec.root), recipe.name, spec.run, mine)
    if read_run(run)["fingerprint"] != mine:
        frozen = [attempt.recipe for attempt in run.attempts() if attempt.recipe.exists()]
        changed = changed_fixed(read_frozen(frozen[-1]), recipe) if frozen else []
        if frozen and not changed:
            return run  # another dlrmx began it, whose schema had fewer settings: all that it had are the same
        hint = "\n    ".join(["a resume cannot change these; to start from its weights use train.init_from", *changed])
        raise InputError(f"run {spec.run} in {spec.root} is of another recipe", hint=hint)
    return run


def _begun(spec: JobSpec, run: RunPaths) -> list[AttemptPaths]:
    """The attempts that this very job has made: by an earlier start of it."""
    return [attempt for attempt in run.attempts() if attempt.number > spec.after_attempt]


def _drive(node: Node) -> End:
    """Attempt after attempt, until one ends well or the retry rule says no."""
    if node.spec.dlrmx != __version__:
        hint = "profile.python names the interpreter of the nodes; `dlrmx resume` goes on under the present version"
        raise InputError(f"the job is of dlrmx {node.spec.dlrmx}, this is {__version__}", hint=hint)
    outcomes = [outcome_of(attempt) for attempt in _begun(node.spec, node.run)]
    previous: AttemptPaths | None = None
    while True:
        attempt = claim_attempt(node.run)
        update_run(node.run, state="running", attempt=attempt.number)
        end = _attempt(node, attempt, stop_now=previous is not None and previous.stop_request.exists())
        if not attempt.dir.is_dir():
            return End("failed", 1, f"{attempt.dir} was deleted while the run was live")
        append_event(attempt, "attempt_ended", outcome=end.state, step=last_step(attempt))
        if end.state != "failed" or end.exit_code != 1 or attempt.stop_request.exists() or node.spec.evaluate:
            return end
        outcomes.append(outcome_of(attempt))
        retry = node.recipe.retry
        decision = decide(
            outcomes,
            attempts_without_progress=retry.attempts_without_progress,
            stop_on_repeat=retry.stop_on_repeat,
        )
        if isinstance(decision, GiveUp):
            append_event(attempt, "gave_up", reason=decision.reason)
            return End("failed", 1, f"{end.reason}\n    not tried again: {decision.reason}")
        previous = attempt


def _attempt(node: Node, attempt: AttemptPaths, *, stop_now: bool) -> End:
    """One attempt, from its inputs to its end."""

    def stop_asked() -> bool:
        return node.signals.asked(attempt)

    try:
        if stop_now or stop_asked():
            raise StopRequested
        write_inputs(node.spec, node.recipe, node.profile, attempt, stop_asked=stop_asked)
    except StopRequested:
        append_event(attempt, "stopped", step=0)
        return End("stopped", STOPPED)
    except (DlrmxError, OSError) as error:
        exit_code = error.exit_code if isinstance(error, DlrmxError) else 1
        fields = {"cause": type(error).__name__, "message": str(error), "primary": True, "exit_code": exit_code}
        append_event(attempt, "failed", rank=None, step=None, **fields)
        return End("failed", exit_code, str(error))
    _run_workers(node, attempt)
    return _end_of(attempt, killed=node.signals.killed)


def _run_workers(node: Node, attempt: AttemptPaths) -> None:
    append_event(attempt, "phase", phase="start")
    workers = workers_per_node(node.profile)
    grace_s = node.profile.grace.minutes * 60
    process = start_agent(
        node.run,
        attempt,
        workers=workers,
        worker=node.worker,
        env=agent_env(os.environ, node.profile.env, workers),
        grace_s=grace_s,
    )
    watch = Watch(
        process,
        attempt,
        workers,
        grace_s,
        stop_asked=lambda: node.signals.asked(attempt),
        killed=lambda: node.signals.killed or not attempt.dir.is_dir(),  # what is deleted can keep no result
    )
    end = watch.wait()
    if not read_events(attempt, "finished", "stopped"):
        note_silent_death(attempt, end, grace_s)


def _end_of(attempt: AttemptPaths, *, killed: bool) -> End:
    """What the workers' events say. `finished` and `stopped` come when all is saved: nothing later undoes them."""
    names = {event["event"] for event in read_events(attempt, "finished", "stopped")}
    if "finished" in names:
        return End("done", 0)
    if "stopped" in names:
        return End("stopped", STOPPED)
    cause = first_cause(attempt)
    if cause is None:
        return End("failed", 1, f"nothing could be written to {attempt.dir}")
    return End("failed", KILLED if killed else cause.exit_code, str(cause))


def main() -> int:
    """Read the job from the environment and drive it."""
    try:
        spec = JobSpec.from_variable(os.environ.get(JOB_VARIABLE, ""))
        parent = os.environ.get(PARENT_VARIABLE)
        return run_node(spec, parent=int(parent) if parent else None)
    except DlrmxError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
