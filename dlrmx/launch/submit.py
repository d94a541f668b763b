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

from dlrmx.errors import ClusterError, InputError, Unanswered
from dlrmx.launch.app import app_def
from dlrmx.launch.job import JobSpec
from dlrmx.launch.local import local_scheduler
from dlrmx.launch.remote import RemoteJob, job_of
from dlrmx.recipe.profiles import Profile
from dlrmx.runs.claim import hold, is_copy, is_live, note_copy, stop_run
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.registry import forget, register, seen_root, unseen
from dlrmx.runs.run_file import read_run, update_run

KILL_PATIENCE_S = 5.0


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


def submit(spec: JobSpec, profile: Profile, *, attached: bool) -> LocalJob | RemoteJob:
    """Start the job of a run that exists. Attached: one of this machine is asked to stop when this process dies.

    Raises UnknownRun where there is no such run, InputError where it is running already, ClusterError where the
    cluster cannot be reached or refuses: then a run that never had a job is gone, and its name is free again.
    """
    run = RunPaths(seen_root(profile) / spec.run)
    read_run(run)
    if unseen(profile):
        note_copy(run, live=False)
    _refuse_queued(run)
    first = job_of(run) is None
    with hold(run):
        update_run(run, state="created", exit_code=None, reason="", job=None)
    register(run)
    with _runner() as runner, _given_back(run, first=first):
        scheduler = runner._scheduler(profile.scheduler)
        app = scheduler.schedule(_dry_run(runner, spec, profile, attached))
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


@dataclass(frozen=True)
class Job:
    """A job of ours on a cluster. state: waits, runs, or how it ended, as its scheduler says."""

    run: str
    app: str
    state: str

    @property
    def waits(self) -> bool:
        return self.state in ("submitted", "pending")

    @property
    def ended(self) -> bool:
        return self.state in ("succeeded", "failed", "cancelled")


def jobs_of(profile: Profile) -> list[Job]:
    """The jobs of ours that a profile's scheduler knows; none where it is this machine. Raises ClusterError."""
    if profile.scheduler in ("local", "none"):
        return []
    wanted = {"kind", "context", "namespace"} if profile.scheduler == "kubernetes" else set()
    settings = {name: value for name, value in profile.model_dump(include=wanted).items() if value is not None}
    with scheduler_of(profile) as scheduler:
        found = scheduler.list(settings)
    return [Job(job.name, job.app_id, job.state.name.lower()) for job in found]


@contextmanager
def scheduler_of(profile: Profile) -> Iterator[Any]:
    """The torchx scheduler of a profile."""
    with _runner() as runner:
        yield runner._scheduler(profile.scheduler)


def dry_run_text(spec: JobSpec, profile: Profile) -> str:
    """The job exactly as it would be submitted. Writes nothing."""
    with _runner() as runner:
        return str(_dry_run(runner, spec, profile, attached=False))


def cancel(run: RunPaths) -> Literal["stops", "taken back"]:
    """Ask a run to save and stop; a job that still waits for its nodes is taken back.

    Raises InputError where it does neither, ClusterError where the cluster cannot be reached.
    """
    live = is_live(run)
    job = None if live and not is_copy(run) else attach(run)
    if job is not None and job.poll() is None:
        if live:
            _stop_out_of_sight(job)
            return "stops"
        job.stop()
        return "taken back"
    stop_run(run, by=f"dlrmx cancel (pid {os.getpid()} on {socket.gethostname()})")
    return "stops"


def _stop_out_of_sight(job: RemoteJob) -> None:
    """Stop a run that is known by what its pod tells, and stay for its last words: they go when the pod goes."""
    from dlrmx.launch.mirror import mirrored

    with mirrored(job.run):
        job.stop()
        while job.poll() is None:
            time.sleep(0.2)


@contextmanager
def _given_back(run: RunPaths, *, first: bool) -> Iterator[None]:
    """Where a run's first job is refused, nothing of the run stays. A job that may be there keeps it."""
    try:
        yield
    except Unanswered:
        raise
    except (ClusterError, InputError):
        if first and not run.attempts():
            forget(run)
            shutil.rmtree(run.dir, ignore_errors=True)
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
