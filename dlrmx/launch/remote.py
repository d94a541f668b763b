"""A job on a cluster, from submission to its end: asked of its scheduler, told in the terms of its run."""

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from torchx.specs import AppState

from dlrmx.errors import ClusterError, DlrmxError, InputError, UnknownRun
from dlrmx.runs.claim import hold, is_copy, is_live, stop_run
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import RunFile, read_run, update_run
from dlrmx.runs.state import Job, noted_job

LOOK_S = 2.0
# A job just submitted may not be known everywhere; one that has ended may be forgotten.
UNKNOWN_S = 60.0
# Schedulers restart, networks hiccup: the job goes on meanwhile.
UNREACHABLE_S = 600.0
# What a node has written on a shared disk may be seen here a minute later: NFS keeps attributes so long (acdirmax).
UNSEEN_S = 60.0
ENDED = (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)
STOPPED, KILLED = 75, 130


@dataclass
class RemoteJob:
    """A submitted job. words: what its scheduler last said of it: why it waits, how it failed; known: that it did.

    away: its scheduler could not be asked last time.
    app: what its scheduler calls it; "" where that is not known, as its submission was not seen to its end.
    """

    run: RunPaths
    app: str
    scheduler: Any
    words: str = ""
    remote: bool = True
    known: bool = False
    away: bool = False
    _state: str = ""
    _code: int | None = None
    _looked: float = -LOOK_S
    _known: float = field(init=False)
    _reached: float = field(default_factory=time.monotonic)
    _succeeded: float | None = None

    def __post_init__(self) -> None:
        self._known = time.monotonic() - min(UNKNOWN_S, _age_s(self.run))

    @property
    def called(self) -> str:
        return f"job {self.app}" if self.app else "its job"

    @property
    def said(self) -> Job:
        """The job as its scheduler spoke of it last."""
        noted = noted_job(read_run(self.run)) or Job("", self.app)
        return replace(noted, app=self.app, state=self._state, words=self.words)

    def poll(self) -> int | None:
        """Exit code of the job: 0 done, 75 stopped and saved, 1 failed, 2 bad input, 130 killed; None while it lives.

        Raises ClusterError where the scheduler was not to be reached for UNREACHABLE_S, or its files are not here.
        """
        now = time.monotonic()
        if self._code is None and now >= self._looked + LOOK_S:
            self._looked = now
            self._code = self._look(now)
        return self._code

    def stop(self) -> None:
        """Ask the job to save and stop; one that has not begun is cancelled. Raises ClusterError and InputError."""
        by = "dlrmx cancel"
        if is_live(self.run) and not is_copy(self.run):
            stop_run(self.run, by=by)
            return
        self._ask()  # the job of that number may be another's by now
        if not self.app:
            hint = "try again in a minute; where it was never submitted, `dlrmx watch` says so"
            raise InputError(f"the scheduler knows no job of run {self.run.name} (yet)", hint=hint)
        self.scheduler.cancel(self.app)
        self._looked = -LOOK_S  # it is news

    def _look(self, now: float) -> int | None:
        try:
            said = self._ask()
        except ClusterError as error:
            self.words, self.away = error.what, True
            if (code := self._written_end()) is None and now > self._reached + UNREACHABLE_S:
                raise
            return code
        self._reached, self.away = now, False
        if said is None:
            if now < self._known + UNKNOWN_S:
                self.words = "its scheduler does not know it (yet)"
                return None
            return self._settle(AppState.UNKNOWN, "its scheduler forgot it" if self.app else "it was never submitted")
        self._known, self.known, self.words, self._state = now, True, said.msg, said.state.name.lower()
        if said.state == AppState.SUCCEEDED and not self._seen(now):
            return None
        return self._settle(said.state, said.msg) if said.state in ENDED else None

    def _ask(self) -> Any:
        """What the scheduler says; None where it knows no such job. Raises ClusterError."""
        self.app = self.app or self.scheduler.find(self.run)
        said = self.scheduler.describe(self.app) if self.app else None
        name = said.metadata.get("name") if said is not None else None
        if name not in (None, "", self.run.name):
            what = f"job {self.app} is {name} here: this shell's cluster is another one, or it has counted anew"
            raise ClusterError(what, hint=f"ask from a shell of the cluster that {self.run.name} was submitted to")
        return said

    def _written_end(self) -> int | None:
        """The exit code of a run whose files tell of its end; a copy's are no news while its cluster is away."""
        fields = read_run(self.run)
        ended = fields["state"] in ("done", "failed", "stopped") and not is_copy(self.run) and not is_live(self.run)
        return int(fields.get("exit_code") or 0) if ended else None

    def _seen(self, now: float) -> bool:
        """Whether the files of a job that ended well say so, too. Raises ClusterError where they never will."""
        if is_copy(self.run) or read_run(self.run)["state"] not in ("created", "running") or is_live(self.run):
            return True
        self._succeeded = now if self._succeeded is None else self._succeeded
        if now > self._succeeded + UNSEEN_S:
            what = f"job {self.app} has ended well, but nothing of it is to be seen in {self.run.dir}"
            hint = "its nodes wrote elsewhere: `root` must be on a disk that they share with this machine"
            raise ClusterError(what, hint=hint)
        self.words = "it has ended well; its files are not to be seen here yet"
        return False

    def _settle(self, state: AppState, words: str) -> int:
        """Write down an end that nobody at the job could write down; the exit code."""
        if is_copy(self.run):
            self._refresh()
        fields = read_run(self.run)
        if fields["state"] in ("created", "running") and not is_live(self.run):
            ended, code, how = self._unwritten_end(fields, state)
            reason = f"job {self.app}: {words}{how}" if self.app else words
            with suppress(DlrmxError), hold(self.run):
                update_run(self.run, state=ended, exit_code=code, reason=reason)
            return code
        if state == AppState.SUCCEEDED:
            return 0
        return int(fields.get("exit_code") or 1)

    def _unwritten_end(self, fields: RunFile, state: AppState) -> tuple[str, int, str]:
        """(run's state, exit code, what to add to the scheduler's words) of a run whose job ended in this state."""
        attempts = self.run.attempts()
        if state == AppState.SUCCEEDED:
            return "done", 0, ""
        if attempts and read_events(attempts[-1], "stopped"):
            return "stopped", STOPPED, ""
        if state == AppState.CANCELLED and fields["state"] == "created":  # it was taken back: nothing of it ran
            return "stopped", STOPPED, " while it waited" if attempts else " before it began"
        return "failed", KILLED if state == AppState.CANCELLED else 1, ""

    def _refresh(self) -> None:
        """Hear a copy's last words. Where they cannot be heard, what the scheduler said has to do."""
        from dlrmx.launch.mirror import refresh

        try:
            refresh(self.run)
        except (ClusterError, OSError) as error:
            self.words = f"{self.words}; its last words cannot be heard: {error}".removeprefix("; ")


def _age_s(run: RunPaths) -> float:
    """Seconds since the run's file was last written, as at its submission."""
    try:
        return max(0.0, time.time() - run.run.stat().st_mtime)
    except OSError:
        return 0.0


def job_of(run: RunPaths) -> dict[str, str] | None:
    """{"scheduler", "app"} of the job that the run was last submitted as; None for one of this machine."""
    try:
        job = read_run(run).get("job")
    except UnknownRun:
        return None
    whole = isinstance(job, dict) and all(isinstance(job.get(key), str) for key in ("scheduler", "app"))
    return job if whole else None
