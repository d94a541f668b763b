"""The torchx scheduler of Slurm clusters: one ordinary allocation per job, asked after with squeue, sacct, scontrol."""

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream, StructuredOpts, filter_regex
from torchx.specs import AppDef, AppDryRunInfo, AppState, Role

from dlrmx.errors import ClusterError
from dlrmx.launch.app import ROLE
from dlrmx.launch.job import JOB_VARIABLE, JobSpec
from dlrmx.launch.local import node_lines
from dlrmx.launch.slurm_commands import AccountsAway, NoAccounting, NoSuchJob, job_number, slurm
from dlrmx.launch.slurm_script import MARK, script
from dlrmx.launch.slurm_state import (
    ENDED,
    RUN_AGAIN,
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    JobState,
    from_sacct,
    from_scontrol,
    from_squeue,
    jobs_of,
)
from dlrmx.recipe.profiles import SlurmProfile, read_profile
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import write_aside


@dataclass
class SlurmOpts(StructuredOpts):  # type: ignore[misc]
    """None: a job's options are its profile's."""


@dataclass(frozen=True)
class SlurmRequest:
    """A job's script, and the run that it is of."""

    run: RunPaths
    script: str

    def __str__(self) -> str:
        return self.script


class SlurmScheduler(Scheduler[SlurmOpts]):  # type: ignore[misc]
    """Jobs of the Slurm cluster that this machine belongs to. An app's id is Slurm's number of the job."""

    def __init__(self, session_name: str) -> None:
        super().__init__("slurm", session_name)

    def _run_opts(self) -> Any:
        return SlurmOpts.as_runopts()

    def _submit_dryrun(self, app: AppDef, cfg: SlurmOpts) -> AppDryRunInfo[SlurmRequest, SlurmOpts]:
        role = app.roles[0]
        spec = JobSpec.from_variable(role.env[JOB_VARIABLE])
        profile = read_profile(spec.profile)
        assert isinstance(profile, SlurmProfile)
        run = RunPaths(Path(spec.root) / spec.run)
        # torchx adds variables of its own, which say nothing to us.
        env = {name: value for name, value in role.env.items() if not name.startswith("TORCHX_")}
        command = shlex.join([role.entrypoint, *role.args])
        return AppDryRunInfo(SlurmRequest(run, script(run, profile, env, command)), str)

    def _validate(self, app: AppDef, scheduler: str, cfg: SlurmOpts) -> None:
        """torchx demands resources of each role; ours are the profile's."""

    def schedule(self, dryrun_info: AppDryRunInfo[SlurmRequest, SlurmOpts]) -> str:
        """Write the script into the run's folder and submit it. Raises ClusterError."""
        request: SlurmRequest = dryrun_info.request
        write_aside(request.run.job_script, request.script)
        return job_number(slurm("sbatch", "--parsable", str(request.run.job_script)))

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """What Slurm says; None where it knows no such job (any more)."""
        state = look(app_id)
        if state is None:
            return None
        restarts = -1 if state.restarts is None else state.restarts
        words = ": ".join(part for part in (state.slurm, state.reason) if part)
        roles = [Role(name=ROLE, image="")]
        name = {"name": state.name}
        return DescribeAppResponse(app_id, state.state, num_restarts=restarts, msg=words, roles=roles, metadata=name)

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """The user's jobs that are ours: those that Slurm's controller remembers."""
        return [ListAppResponse(job, state, name=name) for job, name, state, _ in own_jobs()]

    def find(self, run: RunPaths) -> str:
        """The newest job of a run that has not ended, by the folder in its comment; "" where there is none."""
        jobs = [job for job, _, state, folder in own_jobs() if state not in ENDED and _same(folder, run)]
        return jobs[-1] if jobs else ""

    def _cancel_existing(self, app_id: str) -> None:
        slurm("scancel", app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """The log of node `k` over all attempts, from the run's folder."""
        output = slurm("squeue", "-h", "-t", "all", "-o", "%i|%j|%T|%k", "-j", app_id)
        folders = [folder for _, _, _, folder in jobs_of(output, MARK)]
        if not folders:
            raise ClusterError(f"Slurm does not say which run job {app_id} is of", hint="dlrmx logs RUN")
        lines = node_lines(RunPaths(Path(folders[0])), k, should_tail)
        return filter_regex(regex, lines) if regex else lines


def slurm_scheduler(session_name: str, **_: object) -> SlurmScheduler:
    """Factory for torchx's Runner."""
    return SlurmScheduler(session_name)


def own_jobs() -> list[tuple[str, str, AppState, str]]:
    """(job, run's name, state, run's folder) of this user's jobs that are ours, oldest first."""
    output = slurm("squeue", "-h", "-t", "all", "-o", "%i|%j|%T|%k", "-S", "i", "-u", str(os.getuid()))
    return list(jobs_of(output, MARK))


def _same(folder: str, run: RunPaths) -> bool:
    return os.path.realpath(folder) == os.path.realpath(run.dir)


def look(job: str) -> JobState | None:
    """The job's state: of the queue; once it has ended, as the accounts have it. None where nobody knows the job."""
    queued = _queued(job)
    if queued is not None and queued.slurm in RUN_AGAIN:
        return _shown(job) or queued
    if queued is not None and queued.state not in ENDED:
        return queued
    try:
        accounted = _accounted(job)
    except AccountsAway:
        if (known := _shown(job) or queued) is None:
            raise
        return known
    if accounted is None:
        return _shown(job) or queued
    # The accounts may be a moment behind the queue.
    return queued if queued is not None and accounted.state not in ENDED else accounted


def _queued(job: str) -> JobState | None:
    try:
        return from_squeue(slurm("squeue", "-h", "-t", "all", "-o", SQUEUE_FORMAT, "-j", job), job)
    except NoSuchJob:
        return None


def _accounted(job: str) -> JobState | None:
    try:
        return from_sacct(slurm("sacct", "-n", "-P", "-o", SACCT_FIELDS, "-j", job), job)
    except NoAccounting:
        return None


def _shown(job: str) -> JobState | None:
    try:
        return from_scontrol(slurm("scontrol", "show", "job", "-o", job))
    except NoSuchJob:
        return None
