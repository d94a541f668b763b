"""Has a module of ours run on a cluster's nodes, by a job of its own, and gives what it printed."""

import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from torchx.schedulers.api import DescribeAppResponse
from torchx.specs import AppState

from dlrmx import __version__
from dlrmx.errors import ClusterError, DlrmxError
from dlrmx.launch.app import ROLE, app_def
from dlrmx.launch.job import JobSpec
from dlrmx.launch.remote import ENDED, UNKNOWN_S, UNREACHABLE_S
from dlrmx.launch.submit import scheduler_of
from dlrmx.recipe.profiles import Profile
from dlrmx.runs.layout import RunPaths

LOOK_S = 2.0
# The names of errands' jobs, by which they are told from runs where a scheduler lists both.
NAME = re.compile(r"(doctor|measure)-\d{6}-\d{6}-\d+")


def errand_spec(name: Literal["doctor", "measure"], profile: Profile) -> JobSpec:
    """A job of no run, under a name of its own (NAME)."""
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
            last = _wait(scheduler, job, say)
            if profile.scheduler == "slurm":
                text = run.launch_log.read_text(errors="replace") if run.launch_log.exists() else ""
            else:
                text = "".join(line for node in range(profile.nodes) for line in scheduler.log_iter(job, ROLE, node))
            return f"{text}\n{last}" if last else text
        finally:
            if profile.scheduler == "slurm":
                shutil.rmtree(run.dir, ignore_errors=True)


def _wait(scheduler: Any, job: str, say: Callable[[str], None]) -> str:
    """Wait for the job's end; what its scheduler says of one that did not end well."""
    told, known, reached = "", time.monotonic(), time.monotonic()
    try:
        while True:
            said, words = _look(scheduler, job)
            now = time.monotonic()
            known, reached = now if said else known, reached if said is None and words else now
            if said is not None and said.state in ENDED:
                return "" if said.state == AppState.SUCCEEDED else words
            if now > reached + UNREACHABLE_S or now > known + UNKNOWN_S and not words:
                hint = "somebody deleted it, or its scheduler forgot it: try again"
                raise ClusterError(f"job {job} is not heard of any more{f': {words}' if words else ''}", hint=hint)
            if words != told:
                told = words
                say(f"job {job}: {words}")
            time.sleep(LOOK_S)
    except BaseException:
        say(f"job {job} is taken back")
        with suppress(DlrmxError):
            scheduler.cancel(job)
        raise


def _look(scheduler: Any, job: str) -> tuple[DescribeAppResponse | None, str]:
    """What the scheduler says, and in words; (None, "") where it knows no such job, (None, why) where it is away."""
    try:
        said = scheduler.describe(job)
    except ClusterError as error:
        return None, error.what
    return (None, "") if said is None else (said, f"{said.state.name.lower()} {said.msg}".strip())
