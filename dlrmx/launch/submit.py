"""Submitting a job, showing it unsubmitted, cancelling it: the one door to torchx."""

import os
import signal
import socket
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchx.runner import Runner

from dlrmx.launch.app import app_def
from dlrmx.launch.job import JobSpec
from dlrmx.launch.local import app_id_of, local_scheduler
from dlrmx.recipe.profiles import Profile
from dlrmx.runs.claim import hold, stop_run
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.registry import register
from dlrmx.runs.run_file import read_run, update_run

KILL_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Handle:
    """A submitted job. process: the node process, where it is a child of ours."""

    run: RunPaths
    app: str
    process: subprocess.Popen[bytes] | None

    def poll(self) -> int | None:
        """Exit code of the job: 0 done, 75 stopped and saved, 1 failed, 2 bad input, 130 killed; None while it runs."""
        return None if self.process is None else self.process.poll()

    def stop(self) -> None:
        """Ask the job to save and stop; `poll` tells when it has."""
        if self.process is None:
            cancel(self.run)
        elif self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the job now, without saving. Only for a child of ours."""
        assert self.process is not None
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(KILL_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def submit(spec: JobSpec, profile: Profile, *, attached: bool) -> Handle:
    """Start the job of a run that exists. Attached: it is asked to stop when this process dies.

    Raises UnknownRun where there is no such run, InputError where it is running already.
    """
    run = RunPaths(Path(spec.root) / spec.run)
    read_run(run)
    with hold(run):
        update_run(run, state="created", exit_code=None, reason="")
    register(run)
    with _runner() as runner:
        info = _dry_run(runner, spec, profile, attached)
        app = runner.schedule(info)
        scheduler = runner._scheduler(profile.scheduler)
        return Handle(run, app, scheduler.processes.get(app_id_of(run)))


def dry_run_text(spec: JobSpec, profile: Profile) -> str:
    """The job exactly as it would be submitted. Writes nothing."""
    with _runner() as runner:
        return str(_dry_run(runner, spec, profile, attached=False))


def cancel(run: RunPaths) -> None:
    """Ask a run to save and stop. Raises InputError where it is not running."""
    stop_run(run, by=f"dlrmx cancel (pid {os.getpid()} on {socket.gethostname()})")


def _runner() -> Runner:
    # torchx turns every TORCHX_* variable into an argument of each scheduler, and fails on TORCHX_SESSION_NAME; a file
    # that TORCHXCONFIG names may be gone.
    for name in [name for name in os.environ if name.startswith("TORCHX")]:
        del os.environ[name]
    return Runner("dlrmx", {"local": local_scheduler})


def _dry_run(runner: Runner, spec: JobSpec, profile: Profile, attached: bool) -> Any:
    return runner.dryrun(app_def(_stamped(spec), profile), profile.scheduler, {"attached": attached})


def _stamped(spec: JobSpec) -> JobSpec:
    """Note which attempts came before a resume, so that a requeue of this job can tell its own from theirs."""
    if spec.resume is None or "after_attempt" in spec.resume:
        return spec
    attempts = RunPaths(Path(spec.root) / spec.run).attempts()
    return replace(spec, resume={**spec.resume, "after_attempt": attempts[-1].number if attempts else 0})
