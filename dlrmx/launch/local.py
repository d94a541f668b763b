"""The torchx scheduler of this machine: the node process in a session of its own; all else is read from run files."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream, StructuredOpts, filter_regex
from torchx.specs import AppDef, AppDryRunInfo, AppState, Role

from dlrmx import __version__
from dlrmx.errors import UnknownRun
from dlrmx.launch.job import JOB_VARIABLE, PLAIN_LIMIT, JobSpec
from dlrmx.launch.slurm_script import quoted
from dlrmx.runs.claim import is_live, request_stop
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.registry import all_runs
from dlrmx.runs.state import run_state

PARENT_VARIABLE = "DLRMX_PARENT"
FOLLOW_S = 0.2

STATES = {
    "created": AppState.SUBMITTED,
    "waiting": AppState.PENDING,
    "running": AppState.RUNNING,
    "stopping": AppState.RUNNING,
    "stopped": AppState.CANCELLED,
    "done": AppState.SUCCEEDED,
    "failed": AppState.FAILED,
    "lost": AppState.FAILED,
}


@dataclass
class LocalOpts(StructuredOpts):  # type: ignore[misc]
    """Options of the local scheduler."""

    attached: bool = False
    """Ask the run to stop when the launcher dies."""


@dataclass(frozen=True)
class LocalRequest:
    """One process of this machine: what would run, printable as a bash script that runs as printed."""

    run: RunPaths
    argv: tuple[str, ...]
    env: dict[str, str]

    def __str__(self) -> str:
        exports = "\n".join(f"export {name}={_shown(name, value)}" for name, value in self.env.items())
        command = " ".join(shlex.quote(word) for word in self.argv)
        title = f"# Run {self.run.name}, as dlrmx {__version__} would start it on this machine."
        return f"#!/bin/bash\n{title}\n{exports}\nexec {command}\n"


def _shown(name: str, value: str) -> str:
    """A variable's value for bash; the job on lines of its own, where the system lets a variable be so long."""
    readable = JobSpec.from_variable(value).readable() if name == JOB_VARIABLE else ""
    return shlex.quote(readable) if 0 < len(readable) <= PLAIN_LIMIT else quoted(value)


class LocalScheduler(Scheduler[LocalOpts]):  # type: ignore[misc]
    """Runs jobs on this machine. An app's id is its run's path, percent-encoded: known from any shell and folder."""

    def __init__(self, session_name: str) -> None:
        super().__init__("local", session_name)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def _run_opts(self) -> Any:
        return LocalOpts.as_runopts()

    def _submit_dryrun(self, app: AppDef, cfg: LocalOpts) -> AppDryRunInfo[LocalRequest, LocalOpts]:
        role = app.roles[0]
        # torchx adds variables of its own to the role; they say nothing to us, and TORCHX_SESSION_NAME breaks torchx.
        env = {name: value for name, value in role.env.items() if not name.startswith("TORCHX_")}
        spec = JobSpec.from_variable(env[JOB_VARIABLE])
        return AppDryRunInfo(
            LocalRequest(RunPaths(Path(spec.root) / spec.run), (role.entrypoint, *role.args), env), str
        )

    def _validate(self, app: AppDef, scheduler: str, cfg: LocalOpts) -> None:
        """torchx demands resources of each role; here the node process takes this machine as it is."""

    def schedule(self, dryrun_info: AppDryRunInfo[LocalRequest, LocalOpts]) -> str:
        request = dryrun_info.request
        env = {**os.environ, **request.env}
        if dryrun_info.cfg.attached:
            env[PARENT_VARIABLE] = str(os.getpid())
        with request.run.launch_log.open("ab") as log, _held_back():
            process = subprocess.Popen(
                request.argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        app_id = app_id_of(request.run)
        self.processes[app_id] = process
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        try:
            state = run_state(run_of(app_id))
        except UnknownRun:
            return None
        roles = [Role(name="node", image="")]
        return DescribeAppResponse(
            app_id, STATES[state.state], num_restarts=max(state.attempt - 1, 0), msg=state.reason, roles=roles
        )

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        return [ListAppResponse(app_id_of(run), STATES[run_state(run).state], name=run.name) for run in all_runs()]

    def _cancel_existing(self, app_id: str) -> None:
        run = run_of(app_id)
        if is_live(run):
            request_stop(run.attempts()[-1], by=f"cancel (pid {os.getpid()})")

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
        lines = node_lines(run_of(app_id), k, should_tail)
        return filter_regex(regex, lines) if regex else lines


@contextmanager
def _held_back() -> Iterator[None]:
    """SIGTERM waits meanwhile. A child inherits that: told to stop while it starts, it hears of it once it can."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def local_scheduler(session_name: str, **_: object) -> LocalScheduler:
    """Factory for torchx's Runner, which hands over whatever TORCHX_* variables it found."""
    return LocalScheduler(session_name)


def app_id_of(run: RunPaths) -> str:
    return quote(str(run.dir), safe="")


def run_of(app_id: str) -> RunPaths:
    return RunPaths(Path(unquote(app_id)))


def node_lines(run: RunPaths, node: int, follow: bool) -> Iterator[str]:
    """Lines of one node's log over all attempts; with `follow`, until the run has ended."""
    read: dict[Path, int] = {}
    while True:
        ended = not follow or run_state(run).ended
        for log in [attempt.node_log(node) for attempt in run.attempts()]:
            text = log.read_bytes()[read.get(log, 0) :] if log.exists() else b""
            complete = text if ended else text[: text.rfind(b"\n") + 1]
            read[log] = read.get(log, 0) + len(complete)
            yield from complete.decode(errors="replace").splitlines(keepends=True)
        if ended:
            return
        time.sleep(FOLLOW_S)
