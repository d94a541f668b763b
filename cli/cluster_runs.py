"""The runs of a cluster: what its scheduler says of our jobs, joined with what the runs' files say."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import screen_width, table
from .runs import state_or_word
from .summary import run_row, state_json

if TYPE_CHECKING:
    from dlrmx.launch.submit import ListedJob
    from dlrmx.recipe.profiles import Profile
    from dlrmx.runs.layout import RunPaths
    from dlrmx.runs.state import Job, RunState

HEADER = ("run", "state", "step", "age", "path", "job")


@dataclass(frozen=True)
class Row:
    """A run of a cluster. state: None where this machine has not its files; job: None where nobody knows one."""

    name: str
    state: "RunState | None"
    job: "Job | None"

    @property
    def ended(self) -> bool:
        if self.state is not None:
            return self.state.ended
        return self.job is None or self.job.ended


def cluster_rows(profile: "Profile", *, ended: bool) -> list[Row]:
    """The cluster's runs, newest first: those that wait or run, and, where wanted, those that have ended.

    An end that the scheduler tells of and nobody wrote down is written down. Raises ClusterError where it cannot be
    asked.
    """
    from dlrmx.launch.submit import jobs_of
    from dlrmx.runs.registry import all_runs, seen_root

    root = seen_root(profile)
    listed = {one.job.app: one for one in jobs_of(profile)}
    rows, known = [], set()
    for run in all_runs(root):
        app = _app_of(run, profile)
        if app not in listed and run.dir.parent != root.absolute():
            continue
        known.add(os.path.realpath(run.dir))
        one = listed.pop(app, None) if app is not None else None
        if (state := _state_of(run, one, ours=app is not None)) is not None:
            rows.append(Row(run.name, state, state.job))
    unknown = [Row(one.run, None, one.job) for one in reversed(listed.values()) if _is_another(one, known)]
    return [row for row in [*unknown, *rows] if ended or not row.ended]


def _app_of(run: "RunPaths", profile: "Profile") -> str | None:
    """What the profile's scheduler calls the run's job; None where the run is not its."""
    from dlrmx.launch.remote import job_of

    noted = job_of(run)
    return noted["app"] if noted is not None and noted["scheduler"] == profile.scheduler else None


def _state_of(run: "RunPaths", one: "ListedJob | None", *, ours: bool) -> "RunState | None":
    """By the run's files and what was listed; the scheduler is asked about the job alone where these do not agree."""
    from dataclasses import replace

    from dlrmx.launch.submit import asked
    from dlrmx.runs.run_file import read_run
    from dlrmx.runs.state import noted_job

    if (state := state_or_word(run)) is None or not ours:
        return state
    noted = noted_job(read_run(run))
    if one is not None and noted is not None:
        state = state_or_word(run, replace(noted, state=one.job.state))
    if state is not None and not (one is not None and one.job.lives) and state.state in ("waiting", "lost"):
        return asked(run)
    return state


def _is_another(one: "ListedJob", known: set[str]) -> bool:
    """Whether a job is of a run that is not here: no errand, no earlier job of a known run, nor of one that is gone."""
    from dlrmx.launch.errand import NAME

    if NAME.fullmatch(one.run):
        return False
    if not one.job.ended or not one.folder:
        return True
    folder = Path(one.folder)
    return os.path.realpath(folder) not in known and (folder.is_dir() or not folder.parent.is_dir())


def rows_text(rows: list[Row]) -> str:
    """One line per run; what the scheduler says stands behind it."""
    return table(HEADER, [[*_cells(row), _job_text(row)] for row in rows], right=["step"], width=screen_width())


def row_json(row: Row) -> dict[str, Any]:
    """For programs: what status says; of a run that is not seen from here its name and its job."""
    from dataclasses import asdict

    if row.state is not None:
        return state_json(row.state)
    return {"name": row.name, "job": None if row.job is None else asdict(row.job)}


def _cells(row: Row) -> list[str]:
    if row.state is None:
        return [row.name, row.job.state if row.job else "", "", "", "(not seen from here)"]
    return run_row(row.state)


def _job_text(row: Row) -> str:
    return "" if row.job is None else f"{row.job.app} {row.job.state}".strip()
