"""Has a module of ours run on a cluster's nodes, by a job of its own, and gives what it printed."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlrmx import __version__
from dlrmx.errors import DlrmxError
from dlrmx.launch.app import ROLE, app_def
from dlrmx.launch.job import JobSpec
from dlrmx.launch.remote import ENDED
from dlrmx.launch.submit import scheduler_of
from dlrmx.recipe.profiles import Profile
from dlrmx.runs.layout import RunPaths

LOOK_S = 2.0


def errand_spec(name: str, profile: Profile) -> JobSpec:
    """A job of no run, under a name of its own."""
    return JobSpec(
        dlrmx=__version__,
        run=f"{name}-{time.strftime('%y%m%d-%H%M%S')}-{os.getpid()}",
        root=profile.root,
        recipe="",
        profile=profile.model_dump(mode="json"),
    )


def run_errand(spec: JobSpec, profile: Profile, words: Sequence[str], say: Callable[[str], None]) -> str:
    """What all nodes printed that ran `python WORDS`, on a cluster. Blocks until the job has ended.

    `say` hears why the job waits; Ctrl-C cancels it. Raises ClusterError where the scheduler refuses it.
    """
    run = RunPaths(Path(spec.root) / spec.run)
    app = app_def(spec, profile)
    app.roles[0].args = list(words)
    with scheduler_of(profile) as scheduler:
        if profile.scheduler == "slurm":
            run.dir.mkdir(parents=True)
        try:
            job = scheduler.schedule(scheduler.submit_dryrun(app, {}))
            _wait(scheduler, job, say)
            if profile.scheduler == "slurm":
                return run.launch_log.read_text(errors="replace") if run.launch_log.exists() else ""
            lines = [line for node in range(profile.nodes) for line in scheduler.log_iter(job, ROLE, node)]
            return "".join(lines)
        finally:
            if profile.scheduler == "slurm":
                shutil.rmtree(run.dir, ignore_errors=True)


def _wait(scheduler: Any, job: str, say: Callable[[str], None]) -> None:
    told = ""
    try:
        while True:
            said = scheduler.describe(job)
            if said is not None and said.state in ENDED:
                return
            words = "" if said is None else f"{said.state.name.lower()} {said.msg}".strip()
            if words != told:
                told = words
                say(f"job {job}: {words}")
            time.sleep(LOOK_S)
    except BaseException:
        say(f"job {job} is taken back")
        with suppress(DlrmxError):
            scheduler.cancel(job)
        raise
