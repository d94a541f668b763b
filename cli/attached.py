"""Starts a job and stays with it: submit, follow, save and stop on Ctrl-C, say how it ended; gives its exit code."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dlrmx.errors import DlrmxError

from . import other_files, start
from .follow import follow
from .live import View, open_view
from .output import print_json, print_result, say, say_error

if TYPE_CHECKING:
    from dlrmx.launch.job import JobSpec
    from dlrmx.launch.remote import RemoteJob
    from dlrmx.launch.submit import LocalJob
    from dlrmx.plan.shards import Plan
    from dlrmx.recipe.load import Loaded
    from dlrmx.runs.layout import RunPaths
    from dlrmx.runs.state import RunState

DONE, FAILED, STOPPED, KILLED = 0, 1, 75, 130
NEVER_BEGUN = "whoever started it was ended before it had begun"


def train(loaded: "Loaded", name: str | None, *, detach: bool, json: bool) -> int:
    """Prepare, plan, claim a run, submit; follow it unless detached. Returns the exit code."""
    from dlrmx.recipe.fingerprint import fingerprint
    from dlrmx.runs.claim import create_run

    start.check_interpreter(loaded)
    with open_view() as view:
        planned = start.prepare_and_plan(loaded, view)
        own = loaded.recipe.name, name, fingerprint(loaded.recipe)
        run = create_run(start.new_root(loaded), *own, stamp=start.stamp(loaded))
        code = _attend(run, start.job(loaded, run.name, planned=planned), loaded, view, detach=detach)
    return _tell(run, code, detached=not detach, json=json)


def resume(loaded: "Loaded", run: "RunPaths", from_step: int | None, *, detach: bool, json: bool) -> int:
    """As `train`, for a run that exists; from_step None means its newest good checkpoint."""
    start.check_interpreter(loaded)
    with open_view() as view:
        planned = start.prepare_and_plan(loaded, view)
        spec = start.job(loaded, run.name, planned=planned, resume={"from_step": from_step})
        code = _attend(run, spec, loaded, view, detach=detach)
    return _tell(run, code, detached=not detach, json=json)


def evaluate(loaded: "Loaded", asked: dict[str, str], *, json: bool) -> int:
    """Evaluate a checkpoint, in a run of its own; `asked` are the job's words for it."""
    from dlrmx.recipe.fingerprint import fingerprint
    from dlrmx.runs.claim import create_run
    from dlrmx.runs.run_file import update_run

    start.check_interpreter(loaded)
    with open_view() as view:
        planned: Plan | None
        if "trained_on" in asked:
            planned = other_files.prepare_and_plan(loaded, view, asked)
        else:
            planned = start.prepare_and_plan(loaded, view)
        evaluated = Path(asked["checkpoint"]).parents[1].name
        run = create_run(start.new_root(loaded), f"{evaluated}-eval", None, fingerprint(loaded.recipe))
        update_run(run, evaluates=asked["checkpoint"])
        view.note(f"evaluating {asked['checkpoint']}")
        spec = start.job(loaded, run.name, planned=planned, evaluate=start.as_nodes_see(loaded, asked))
        code = _attend(run, spec, loaded, view, detach=False)
    if code == DONE and "predict" in asked:
        say(f"scores: {asked['predict']}")
    return _tell(run, code, json=json)


def dry_run(loaded: "Loaded", run: str, *, resume: dict[str, int | None] | None = None) -> str:
    """The job as `train` or `resume` would submit it. Writes nothing and prepares nothing."""
    from dlrmx.launch.submit import dry_run_text

    if loaded.profile.scheduler == "local":
        data = start.prepared(loaded)
        planned = start.plan(loaded, data) if data else None
    else:
        planned = start.plan_ahead(loaded)
        for line in start.stray_variables(loaded):
            say(line.replace("it is kept from the job", "unset it before you pipe this to sbatch"))
    return dry_run_text(start.job(loaded, run, planned=planned, resume=resume), loaded.profile)


def _attend(run: "RunPaths", spec: "JobSpec", loaded: "Loaded", view: View, *, detach: bool) -> int | None:
    """Submit the job and follow it to its end. Returns its exit code; None where it was left to itself."""
    from dlrmx.launch.remote import RemoteJob
    from dlrmx.launch.submit import submit

    first = max((attempt.number for attempt in run.attempts()), default=0) + 1
    cluster = loaded.recipe.cluster if isinstance(loaded.recipe.cluster, str) else ""
    job = submit(spec, loaded.profile, attached=not detach, cluster=cluster)
    if detach:
        return None
    if isinstance(job, RemoteJob):
        view.note(f"run {run.name} in {run.dir}")
        return stay_with(job, view, first=first)
    view.show({"event": "phase", "phase": "start"})
    view.note(f"run {run.name} in {run.dir}")
    ended = follow(run, view, first=first, over=lambda: job.poll() is not None, interrupted=_on_interrupt(job, view))
    return job.poll() if ended else KILLED


def stay_with(job: "RemoteJob", view: View, *, first: int) -> int | None:
    """Follow a cluster's job to its end: its exit code. Ctrl-C leaves it alone: None."""
    from dlrmx.runs.claim import is_live

    code: int | None = None

    def over() -> bool:
        nonlocal code
        code = job.poll()
        return code is not None

    def waits() -> str:
        if code is not None or is_live(job.run) and not job.away:
            return ""
        return f"{job.called}: {job.words or job.said.state or 'its scheduler has not spoken of it yet'}"

    view.note(f"{job.called}; Ctrl-C leaves it running")
    ended = follow(job.run, view, first=first, over=over, interrupted=lambda _: True, waits=waits)
    return code if ended else None


def watch_run(run: "RunPaths") -> bool:
    """Follow a run's newest attempt (and later ones) until the run ends; Ctrl-C leaves the run alone: False.

    Of a cluster's run its scheduler is asked, too: one that nobody drives any more is not waited for.
    """
    first = max((attempt.number for attempt in run.attempts()), default=1)
    job = live_job(run)
    with open_view() as view:
        view.note(f"run {run.name} in {run.dir}")
        if job is not None:
            return stay_with(job, view, first=first) is not None
        return follow(run, view, first=first, over=lambda: _over_here(run), interrupted=lambda _: True)


def detached_text(state: "RunState") -> str:
    """How to come back to a run that was left to itself, and how to end it."""
    from dlrmx.runs.layout import RunPaths

    from .runs import words_for
    from .summary import job_text

    words, job = words_for(RunPaths(state.dir)), job_text(state)
    goes_on = f"{state.name} goes on{job and f' as {job}'}"
    return f"detached; {goes_on}: dlrmx watch {words} follows it, dlrmx cancel {words} saves and stops it"


def over_of(run: "RunPaths") -> Callable[[], bool]:
    """Asks whether a run has ended; of a cluster's run also its scheduler, as nobody may be left to write it down."""
    job = live_job(run)
    return (lambda: _over_here(run)) if job is None else (lambda: job.poll() is not None)


def _over_here(run: "RunPaths") -> bool:
    """Whether a run without a cluster's job has ended. Raises DlrmxError where nobody will ever begin it."""
    from dlrmx.runs.state import never_begun, run_state

    if never_begun(run):
        hint = f"start it anew: dlrmx train RECIPE; its name is free once {run.dir} is deleted"
        raise DlrmxError(f"run {run.name} does not run: {NEVER_BEGUN}", hint=hint)
    return run_state(run).ended


def live_job(run: "RunPaths") -> "RemoteJob | None":
    """The cluster's job that may still go on with a run: also with one that it has saved, or that was lost."""
    from dlrmx.launch.submit import attach
    from dlrmx.runs.state import run_state

    state = run_state(run).state
    job = None if state in ("done", "failed") else attach(run)
    if job is None or state != "stopped":
        return job
    return job if job.poll() is None and job.said.waits else None


def exit_code_of(state: "RunState") -> int:
    """What `train` would have ended with, had it followed the run."""
    if state.state in ("done", "stopped"):
        return DONE if state.state == "done" else STOPPED
    return state.exit_code or FAILED


def _on_interrupt(job: "LocalJob", view: View) -> Callable[[int], bool]:
    """The first Ctrl-C asks to save and stop, the second kills. True: stop following."""

    def interrupted(times: int) -> bool:
        if times == 1:
            view.note("saving, then stopping; Ctrl-C again kills without saving")
            job.stop()
            return False
        job.kill()
        return True

    return interrupted


def _tell(run: "RunPaths", code: int | None, *, detached: bool = True, json: bool) -> int:
    """Say how the run ended, as its files have it. Returns the exit code of the command.

    detached: where the run goes on (code None), whether somebody stopped following it; else nobody began to.
    """
    from dlrmx.runs.state import run_state

    from .failure import diagnosis_json, failure_text
    from .runs import words_for
    from .summary import done_text, file_evaluations, job_text, newest_evaluation, state_json, stopped_text

    state = run_state(run)
    if json:
        files = {"files": file_evaluations(run)} if state.evaluates else {}
        diagnosis = diagnosis_json(run, state)
        print_json(**state_json(state), diagnosis=diagnosis, evaluation=newest_evaluation(run), **files)
    if code is None:
        accepted = "accepted" + (f" as {job}" if (job := job_text(state)) else "")
        say(detached_text(state) if detached else f"{accepted}; follow it with: dlrmx watch {words_for(run)}")
        if not json:
            print_result(run.name)
    elif code == DONE and not json:
        print_result(done_text(run, state, newest_evaluation(run)))
    elif code in (STOPPED, KILLED):
        say(stopped_text(state) if code == STOPPED else f"killed; {stopped_text(state)}")
    elif code != DONE and state.state in ("running", "stopping"):  # ours was refused: somebody else's came first
        say_error(f"run {run.name} is running already\n    follow it with: dlrmx watch {words_for(run)}")
    elif code != DONE:
        say_error(failure_text(run, state))
    return FAILED if code is not None and code < 0 else code or DONE
