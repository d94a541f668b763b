"""The node process: the one command of every job, `python -m dlrmx.launch.node`, with the job in DLRMX_JOB.

One runs on each node. Node 0's takes the run's lock, opens attempt after attempt, leads the others through them, and
writes down how the run ended. Exit codes: 0 done, 75 start the job again (it was stopped by its scheduler and has
saved, or lost a node), 76 stopped and saved because somebody asked, 1 failed, 2 bad input or no good checkpoint, 130
killed on request. On this machine, where nobody starts jobs again, 76 is 75, too.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from dlrmx import __version__
from dlrmx.errors import DlrmxError, InputError
from dlrmx.launch.agent import Watch, agent_env, start_agent
from dlrmx.launch.crew import POLL_S, Crew
from dlrmx.launch.inputs import parse_recipe, write_inputs
from dlrmx.launch.job import JOB_VARIABLE, JobSpec
from dlrmx.launch.local import PARENT_VARIABLE
from dlrmx.launch.member import Member, join
from dlrmx.launch.opening import attempts_of, open_run
from dlrmx.launch.outcome import note_silent_death, outcome_of, why_unwritten
from dlrmx.launch.place import APP_VARIABLE, START_AGAIN, free_port, place_of, token_of
from dlrmx.launch.retry import GiveUp, Outcome, Retry, decide
from dlrmx.launch.stopping import StopRequested, StopSignals
from dlrmx.launch.telling import telling
from dlrmx.recipe.clusters import workers_per_node
from dlrmx.recipe.profiles import Profile, read_profile
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.claim import claim_attempt, hold, is_live, request_stop
from dlrmx.runs.diagnosis import first_cause, last_step
from dlrmx.runs.events import append_event, read_events
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.registry import register
from dlrmx.runs.run_file import read_run, update_run

WORKER = ("-m", "dlrmx.train.worker")
AGAIN = STOPPED = START_AGAIN
STOPPED_FOR_GOOD = 76
KILLED = 130
# Beyond the grace in which an earlier start of the job saves: its workers are killed, their agents say so.
LET_GO_S = 60.0


@dataclass(frozen=True)
class End:
    """How a run, or one attempt of it, ended; created: not at all, it waits for its job to be started again."""

    state: Literal["done", "stopped", "failed", "created"]
    exit_code: int
    reason: str = ""


@dataclass(frozen=True)
class Node:
    """One submission, as its node 0 has it: what all of its attempts share."""

    spec: JobSpec
    recipe: Recipe
    profile: Profile
    run: RunPaths
    signals: StopSignals
    worker: Sequence[str]
    crew: Crew


def run_node(spec: JobSpec, worker: Sequence[str] = WORKER, parent: int | None = None) -> int:
    """Play this node's part until the run's end; returns the exit code. `worker`: what torch.distributed.run starts.

    Raises InputError, with nothing changed, where the run is another's: running already, or of another recipe.
    """
    signals = StopSignals(parent)
    signals.install()
    recipe = parse_recipe(spec.recipe)
    profile = read_profile(spec.profile)
    place = place_of(os.environ, profile.nodes)
    token = token_of(os.environ, spec.to_variable())
    if not place.leads:
        link = join(place, token, stop_asked=lambda: signals.by is not None)
        return Member(spec, recipe, profile, place, signals, worker, link).serve()
    crew = Crew(place, token)
    end = End("failed", 1)
    try:
        run = open_run(spec, recipe)
        with telling(run, os.environ):
            end = _lead(Node(spec, recipe, profile, run, signals, worker, crew))
    except DlrmxError as error:
        end = End("failed", error.exit_code)
        raise
    finally:
        code = _code_of(end, by_scheduler=signals.by is not None or profile.scheduler == "local")
        crew.dismiss(code)
    return code


def _lead(node: Node) -> End:
    """Hold the run, and write down how it ended."""
    with _held(node):
        if read_run(node.run)["state"] == "done" and attempts_of(node.spec, node.run):
            return End("done", 0)  # the job was started once more after its end
        update_run(node.run, state="created", **_job_fields(node))
        register(node.run)
        end = End("failed", 1, f"a fault in dlrmx: see {node.run.launch_log}")
        try:
            end = _again(node, _drive(node))
        except (DlrmxError, OSError) as error:
            end = End("failed", error.exit_code if isinstance(error, DlrmxError) else 1, str(error))
            print(error, file=sys.stderr, flush=True)
        finally:
            code = None if end.state == "created" else end.exit_code
            try:
                update_run(node.run, state=end.state, exit_code=code, reason=end.reason, ended=time.time())
            except OSError as error:
                print(f"{end.reason}\nand that cannot be written down: {error}", file=sys.stderr, flush=True)
    return end


def _again(node: Node, end: End) -> End:
    """A cluster's run that its scheduler stopped has not ended: it waits for the next start of its job."""
    if end.state != "stopped" or node.signals.by is None or node.profile.scheduler == "local":
        return end
    return End("created", AGAIN, f"{node.signals.by}: it has saved, and waits for its job to be started again")


def _held(node: Node) -> AbstractContextManager[None]:
    """Hold the run; wait for an earlier start of this very job, which its scheduler thinks is dead, to let go of it."""
    job = _job_fields(node).get("job")
    if job is None or read_run(node.run).get("job") != job or not is_live(node.run):
        return hold(node.run)
    for attempt in node.run.attempts()[-1:]:
        request_stop(attempt, by=f"the next start of its job (pid {os.getpid()} on {socket.gethostname()})")
    return hold(node.run, patience_s=node.profile.grace.minutes * 60 + LET_GO_S)


def _code_of(end: End, *, by_scheduler: bool) -> int:
    return STOPPED_FOR_GOOD if end.state == "stopped" and not by_scheduler else end.exit_code


def _job_fields(node: Node) -> dict[str, object]:
    app = os.environ.get(APP_VARIABLE)
    return {"job": {"scheduler": node.profile.scheduler, "app": app}} if app else {}


def _drive(node: Node) -> End:
    """Attempt after attempt, until one ends well or the retry rule says no."""
    if node.spec.dlrmx != __version__:
        hint = "profile.python names the interpreter of the nodes; `dlrmx resume` goes on under the present version"
        raise InputError(f"the job is of dlrmx {node.spec.dlrmx}, this is {__version__}", hint=hint)
    outcomes = [outcome_of(attempt) for attempt in attempts_of(node.spec, node.run)]
    previous: AttemptPaths | None = None
    reason = ""
    while True:
        if outcomes and isinstance(decision := _decide(node, outcomes), GiveUp):
            if previous is not None:
                append_event(previous, "gave_up", reason=decision.reason)
            return End("failed", 1, f"{reason}\n    not tried again: {decision.reason}".lstrip())
        if node.crew.lost:
            return End("created", AGAIN, f"{reason}\n    waits for its job to be started again")
        attempt = claim_attempt(node.run)
        update_run(node.run, state="running", attempt=attempt.number)
        end = _attempt(node, attempt, stop_now=previous is not None and previous.stop_request.exists())
        if not attempt.dir.is_dir():
            return End("failed", 1, f"{attempt.dir} was deleted while the run was live")
        append_event(attempt, "attempt_ended", outcome=end.state, step=last_step(attempt))
        # Asked to stop by its scheduler, but a node was gone before all had saved: that is the next start's to mend.
        stops = attempt.stop_request.exists() and not (node.crew.lost and node.signals.by is not None)
        if end.state != "failed" or end.exit_code != 1 or stops or node.spec.evaluate:
            return end
        outcomes.append(outcome_of(attempt))
        previous, reason = attempt, end.reason


def _decide(node: Node, outcomes: Sequence[Outcome]) -> Retry | GiveUp:
    retry = node.recipe.retry
    return decide(
        outcomes, attempts_without_progress=retry.attempts_without_progress, stop_on_repeat=retry.stop_on_repeat
    )


def _attempt(node: Node, attempt: AttemptPaths, *, stop_now: bool) -> End:
    """One attempt, from its inputs to its end on all nodes."""
    crew, told = node.crew, node.signals.told

    def stop_asked() -> bool:
        crew.pump(attempt, told)
        return node.signals.asked(attempt)

    try:
        if stop_now or stop_asked():
            raise StopRequested
        _get_ready(node, attempt, stop_asked)
    except StopRequested:
        crew.end(attempt, told)
        append_event(attempt, "stopped", step=0)
        return End("stopped", STOPPED)
    except (DlrmxError, OSError) as error:
        crew.end(attempt, told)
        exit_code = error.exit_code if isinstance(error, DlrmxError) else 1
        fields = {"cause": type(error).__name__, "message": str(error), "primary": True, "exit_code": exit_code}
        append_event(attempt, "failed", rank=None, step=None, **fields)
        return End("failed", exit_code, str(error))
    if crew.refusal:
        append_event(attempt, "failed", rank=None, step=None, primary=True, **crew.refusal)
    elif not crew.lost:
        _run_workers(node, attempt, stop_asked)
    crew.end(attempt, told)
    return _end_of(attempt, killed=node.signals.killed)


def _get_ready(node: Node, attempt: AttemptPaths, stop_asked: Callable[[], bool]) -> None:
    """Have all nodes there, with all that their workers need; those who cannot are the crew's to tell.

    Raises StopRequested, and what `write_inputs` raises.
    """
    crew = node.crew
    crew.gather(stop_asked)
    if stop_asked():
        raise StopRequested
    crew.begin(attempt)
    if not crew.lost and not crew.refusal:
        write_inputs(node.spec, node.recipe, node.profile, attempt, stop_asked=stop_asked)
    while not crew.all_prepared():
        if stop_asked():
            raise StopRequested
        time.sleep(POLL_S)


def _run_workers(node: Node, attempt: AttemptPaths, stop_asked: Callable[[], bool]) -> None:
    append_event(attempt, "phase", phase="start")
    crew, place = node.crew, node.crew.place
    workers = workers_per_node(node.profile)
    grace_s = node.profile.grace.minutes * 60
    port = free_port()
    crew.go(attempt, port)
    process = start_agent(
        attempt,
        place,
        port=port,
        workers=workers,
        worker=node.worker,
        env=agent_env(os.environ, node.profile.env, workers, crew.address),
        grace_s=grace_s,
    )
    watch = Watch(
        process,
        attempt,
        workers,
        grace_s,
        stop_asked=stop_asked,
        killed=lambda: node.signals.killed or not attempt.dir.is_dir(),  # what is deleted can keep no result
        others_over=lambda: crew.any_over,
    )
    end = watch.wait()
    crew.end(attempt, node.signals.told)  # first: the others' last words may tell of the fault itself
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
    if cause is None or not read_events(attempt, "failed"):
        return End("failed", 1, f"nothing could be written to {attempt.dir}: {why_unwritten(attempt.dir)}")
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
    except OSError as error:  # the run's folder went away, or may not be written
        print(f"this node cannot do its part: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
