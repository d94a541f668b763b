"""A job on a cluster, from submission to its end: asked of its scheduler, told in the terms of its run."""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torchx.specs import AppState

from dlrmx.errors import ClusterError, DlrmxError, UnknownRun
from dlrmx.runs.claim import hold, is_copy, is_live, stop_run
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import read_run, update_run

LOOK_S = 2.0
# A job just submitted may not be known everywhere; one that has ended may be forgotten.
UNKNOWN_S = 60.0
# Schedulers restart, networks hiccup: the job goes on meanwhile.
UNREACHABLE_S = 600.0
ENDED = (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)
STOPPED, KILLED = 75, 130


@dataclass
class RemoteJob:
    """A submitted job. words: what its scheduler last said of it: why it waits, how it failed; known: that it did."""

    run: RunPaths
    app: str
    scheduler: Any
    words: str = ""
    remote: bool = True
    known: bool = False
    _code: int | None = None
    _looked: float = -LOOK_S
    _known: float = field(default_factory=time.monotonic)
    _reached: float = field(default_factory=time.monotonic)

    def poll(self) -> int | None:
        """Exit code of the job: 0 done, 75 stopped and saved, 1 failed, 2 bad input, 130 killed; None while it lives.

        Raises ClusterError where the scheduler was not to be reached for UNREACHABLE_S.
        """
        now = time.monotonic()
        if self._code is None and now >= self._looked + LOOK_S:
            self._looked = now
            self._code = self._look(now)
        return self._code

    def stop(self) -> None:
        """Ask the job to save and stop; one that has not begun is cancelled. Raises ClusterError."""
        by = "dlrmx cancel"
        if is_live(self.run) and not is_copy(self.run):
            stop_run(self.run, by=by)
        else:
            self.scheduler.cancel(self.app)

    def _look(self, now: float) -> int | None:
        try:
            said = self.scheduler.describe(self.app)
        except ClusterError as error:
            self.words = error.what
            if now > self._reached + UNREACHABLE_S:
                raise
            return None
        self._reached = now
        if said is None:
            return None if now < self._known + UNKNOWN_S else self._settle(AppState.UNKNOWN, "its scheduler forgot it")
        self._known, self.known, self.words = now, True, said.msg
        return self._settle(said.state, said.msg) if said.state in ENDED else None

    def _settle(self, state: AppState, words: str) -> int:
        """Write down an end that nobody at the job could write down; the exit code."""
        if is_copy(self.run):
            from dlrmx.launch.mirror import refresh

            refresh(self.run)
        fields = read_run(self.run)
        if fields["state"] in ("created", "running") and state != AppState.SUCCEEDED and not is_live(self.run):
            attempts = self.run.attempts()
            if attempts and read_events(attempts[-1], "stopped"):
                ended, code = "stopped", STOPPED
            else:
                ended, code = "failed", KILLED if state == AppState.CANCELLED else 1
            with suppress(DlrmxError), hold(self.run):
                update_run(self.run, state=ended, exit_code=code, reason=f"job {self.app}: {words}")
            return code
        if state == AppState.SUCCEEDED:
            return 0
        return int(fields.get("exit_code") or 1)


def job_of(run: RunPaths) -> dict[str, str] | None:
    """{"scheduler", "app"} of the job that the run was last submitted as; None for one of this machine."""
    try:
        job = read_run(run).get("job")
    except UnknownRun:
        return None
    whole = isinstance(job, dict) and all(isinstance(job.get(key), str) for key in ("scheduler", "app"))
    return job if whole else None
