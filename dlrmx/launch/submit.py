"""Submitting a job, showing it unsubmitted, cancelling it: the one door to torchx."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from torchx.runner import Runner

from dlrmx.errors import ClusterError, DlrmxError, InputError, Unanswered
from dlrmx.launch.app import app_def
from dlrmx.launch.job import JobSpec
from dlrmx.launch.local import local_scheduler
from dlrmx.launch.remote import RemoteJob, job_of
from dlrmx.recipe.profiles import Profile
from dlrmx.runs.claim import hold, is_copy, is_live, note_copy, stop_run
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.registry import forget, register, seen_root, unseen
from dlrmx.runs.run_file import RunFile, read_run, update_run, write_aside, write_run
from dlrmx.runs.state import Job, RunState, run_state

KILL_PATIENCE_S = 5.0
# Until a scheduler says of a job that was taken back that it has ended.
TAKEN_BACK_S = 15.0


@dataclass
class LocalJob:
    """A job on this machine, to be used as a RemoteJob is. process: the node process, a child of ours."""

    run: RunPaths
    app: str
    process: subprocess.Popen[bytes]
    remote: bool = False
    words: str = ""

    def poll(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the job now, without saving."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(KILL_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def submit(spec: JobSpec, profile: Profile, *, attached: bool, cluster: str = "") -> LocalJob | RemoteJob:
    """Start the job of a run that exists. Attached: one of this machine is asked to stop when this process dies.

    cluster: the profile's name, to be told with the job; "" where it has none, or is as before.
    Raises UnknownRun where there is no such run, InputError where it is running already, ClusterError where the
    cluster cannot be reached or refuses: then a run that never had a job is gone, and its name is free again.
    """
    run = RunPaths(seen_root(profile) / spec.run)
    before = read_run(run)
    if unseen(profile):
        note_copy(run, live=False)
    _refuse_queued(run)
    with _runner() as runner:
        scheduler = runner._scheduler(profile.scheduler)
        info = _dry_run(runner, spec, profile, attached)
        with hold(run):
            if read_run(run).get("job") != before.get("job"):
                hint = f"`dlrmx watch {run.name}` follows it"
                raise InputError(f"run {run.name} was submitted by another dlrmx just now", hint=hint)
            # Whoever dies or waits in vain from here on leaves a run that says where its job is to be looked for.
            noted = {"job": _expected(info, profile), "cancelled": None, **({"cluster": cluster} if cluster else {})}
            update_run(run, state="created", exit_code=None, reason="", **noted)
            if profile.scheduler != "local":
                write_aside(run.recipe, spec.recipe)  # a job that is taken back before it began can be resumed, too
        register(run)
        with _given_back(run, before):
            app = scheduler.schedule(info)
    if profile.scheduler == "local":
        return LocalJob(run, app, scheduler.processes[app])
    with suppress(InputError), hold(run):  # it may run already, and has written the same
        update_run(run, job={"scheduler": profile.scheduler, "app": app})
    return RemoteJob(run, app, scheduler)


def attach(run: RunPaths) -> RemoteJob | None:
    """The job of a cluster that the run was last submitted as, from any shell; None for a run of this machine."""
    job = job_of(run)
    if job is None:
        return None
    with _runner() as runner:
        return RemoteJob(run, job["app"], runner._scheduler(job["scheduler"]))


def asked(run: RunPaths) -> RunState:
    """The run's state: by its files and, where nobody is seen to drive it, by what its scheduler says of its job.

    An end that nobody wrote down is written down. Raises UnknownRun; ClusterError where its files are not here.
    """
    state = run_state(run)
    seen = state.state in ("running", "stopping") and not state.is_copy
    if state.state in ("created", "done", "failed") or seen or (job := attach(run)) is None:
        return state
    job.poll()
    return run_state(run, job.said)


@dataclass(frozen=True)
class ListedJob:
    """A job of ours that a scheduler lists, of which run; folder: where that is, "" where the scheduler knows none."""

    run: str
    folder: str
    job: Job


def jobs_of(profile: Profile) -> list[ListedJob]:
    """The jobs of ours that a profile's scheduler knows, oldest first; none of this machine. Raises ClusterError."""
    if profile.scheduler in ("local", "none"):
        return []
    if profile.scheduler == "slurm":
        from dlrmx.launch.slurm import own_jobs

        return [
            ListedJob(name, folder, Job("slurm", app, state=state.name.lower()))
            for app, name, state, folder in own_jobs()
        ]
    wanted = {"kind", "context", "namespace"}
    settings = {name: value for name, value in profile.model_dump(include=wanted).items() if value is not None}
    with scheduler_of(profile) as scheduler:
        found = scheduler.list(settings)
    return [ListedJob(one.name, "", Job(profile.scheduler, one.app_id, state=one.state.name.lower())) for one in found]


@contextmanager
def scheduler_of(profile: Profile) -> Iterator[Any]:
    """The torchx scheduler of a profile."""
    with _runner() as runner:
        yield runner._scheduler(profile.scheduler)


def dry_run_text(spec: JobSpec, profile: Profile) -> str:
    """The job exactly as it would be submitted. Writes nothing."""
    with _runner() as runner:
        return str(_dry_run(runner, spec, profile, attached=False))


def cancel(run: RunPaths) -> Literal["stops", "taken back", "ends"]:
    """Ask a run to save and stop; a job that nobody drives is taken back. "ends": its scheduler takes its time for it.

    Raises InputError where it does neither, ClusterError where the cluster cannot be reached.
    """
    live = is_live(run)
    job = None if live and not is_copy(run) else attach(run)
    if job is not None and job.poll() is None:
        if live:
            _stop_out_of_sight(job)
            return "stops"
        job.stop()
        return _taken_back(run, job)
    stop_run(run, by=f"dlrmx cancel (pid {os.getpid()} on {socket.gethostname()})")
    return "stops"


def _taken_back(run: RunPaths, job: RemoteJob) -> Literal["taken back", "ends"]:
    """Wait until a job has ended that was cancelled, so that its run says so."""
    with suppress(InputError), hold(run):  # it may begin in this moment: then it is told to stop there
        update_run(run, cancelled=job.app)
    deadline = time.monotonic() + TAKEN_BACK_S
    while job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    return "ends" if job.poll() is None else "taken back"


def _stop_out_of_sight(job: RemoteJob) -> None:
    """Stop a run that is known by what its pod tells, and stay for its last words: they go when the pod goes."""
    from dlrmx.launch.mirror import mirrored

    with mirrored(job.run, lambda _: None):
        job.stop()
        while job.poll() is None:
            time.sleep(0.2)


def _expected(info: Any, profile: Profile) -> dict[str, str] | None:
    """What a job will be called, in run.json's words, as far as that is known before it is submitted."""
    if profile.scheduler == "local":
        return None
    return {"scheduler": profile.scheduler, "app": info.request.app.id if profile.scheduler == "kubernetes" else ""}


@contextmanager
def _given_back(run: RunPaths, before: RunFile) -> Iterator[None]:
    """Where a run's first job is refused, nothing of the run stays; after a later one it is as it was before.

    A job that may be there keeps the run.
    """
    try:
        yield
    except Unanswered as error:
        hint = f"it may have been submitted: `dlrmx status {run.name}` looks for it\n    {error.hint}"
        raise Unanswered(error.what, hint=hint) from error
    except (ClusterError, InputError, OSError):
        if before.get("job") is None and not run.attempts():
            forget(run)
            shutil.rmtree(run.dir, ignore_errors=True)
        else:
            with suppress(DlrmxError, OSError), hold(run):
                write_run(run, before)
        raise


def _refuse_queued(run: RunPaths) -> None:
    """A run whose job waits for its nodes would be driven by two jobs."""
    job = None if is_live(run) else attach(run)
    if job is not None and job.poll() is None and job.known:
        hint = f"`dlrmx watch {run.name}` follows it, `dlrmx cancel {run.name}` takes it back"
        raise InputError(f"job {job.app} of run {run.name} is in the queue already: {job.words}", hint=hint)


def _runner() -> Runner:
    # torchx turns every TORCHX_* variable into an argument of each scheduler, and fails on TORCHX_SESSION_NAME; a file
    # that TORCHXCONFIG names may be gone.
    for name in [name for name in os.environ if name.startswith("TORCHX")]:
        del os.environ[name]
    return Runner("dlrmx", {name: partial(_scheduler, name) for name in ("local", "slurm", "kubernetes")})


def _scheduler(name: str, session_name: str, **settings: object) -> Any:
    """A factory that imports what its scheduler needs only when it is asked for."""
    match name:
        case "slurm":
            from dlrmx.launch.slurm import slurm_scheduler

            return slurm_scheduler(session_name, **settings)
        case "kubernetes":
            from dlrmx.launch.kubernetes import kubernetes_scheduler

            return kubernetes_scheduler(session_name, **settings)
        case _:
            return local_scheduler(session_name, **settings)


def _dry_run(runner: Runner, spec: JobSpec, profile: Profile, attached: bool) -> Any:
    settings = {"attached": attached} if profile.scheduler == "local" else {}
    return runner.dryrun(app_def(_stamped(spec, profile), profile), profile.scheduler, settings)


def _stamped(spec: JobSpec, profile: Profile) -> JobSpec:
    """Note which attempts came before a resume, so that a requeue of this job can tell its own from theirs."""
    if spec.resume is None or "after_attempt" in spec.resume:
        return spec
    attempts = RunPaths(seen_root(profile) / spec.run).attempts()
    return replace(spec, resume={**spec.resume, "after_attempt": attempts[-1].number if attempts else 0})
