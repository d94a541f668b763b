"""The runs of a cluster: what its scheduler says of our jobs, joined with what the runs' files say."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .output import screen_width, table
from .runs import state_or_word
from .summary import run_row, state_json

if TYPE_CHECKING:
    from dlrmx.launch.submit import Job
    from dlrmx.recipe.profiles import Profile
    from dlrmx.runs.state import RunState

HEADER = ("run", "state", "step", "age", "path", "job")


@dataclass(frozen=True)
class Row:
    """A run of a cluster. state: None where this machine has not its files; job: None where nobody knows one."""

    name: str
    state: "RunState | None"
    job: "Job | None"

    @property
    def ended(self) -> bool:
        if self.job is not None:
            return self.job.ended
        return self.state is None or self.state.ended


def cluster_rows(profile: "Profile", *, ended: bool) -> list[Row]:
    """The cluster's runs, newest first: those that wait or run, and, where wanted, those that have ended.

    Raises ClusterError where the scheduler cannot be asked.
    """
    from dlrmx.launch.remote import job_of
    from dlrmx.launch.submit import jobs_of
    from dlrmx.runs.registry import all_runs, seen_root

    root = seen_root(profile)
    jobs = {job.app: job for job in jobs_of(profile)}
    rows = []
    for run in all_runs(root):
        known = job_of(run)
        job = jobs.pop(known["app"], None) if known is not None and known["scheduler"] == profile.scheduler else None
        if (job is not None or run.dir.parent == root.absolute()) and (state := state_or_word(run)) is not None:
            rows.append(Row(run.name, state, job))
    unknown = [Row(job.run, None, job) for job in reversed(jobs.values())]
    return [row for row in [*unknown, *rows] if ended or not row.ended]


def rows_text(rows: list[Row]) -> str:
    """One line per run; what the scheduler says stands behind it."""
    return table(HEADER, [[*_cells(row), _job_text(row)] for row in rows], right=["step"], width=screen_width())


def row_json(row: Row) -> dict[str, Any]:
    """For programs: what status says, and the job."""
    from dataclasses import asdict

    state = {"name": row.name} if row.state is None else state_json(row.state)
    return {**state, "job": None if row.job is None else asdict(row.job)}


def _cells(row: Row) -> list[str]:
    if row.state is None:
        return [row.name, row.job.state if row.job else "", "", "", "(not seen from here)"]
    name, state, *rest = run_row(row.state)
    if row.job is not None and row.job.waits and row.state.state in ("created", "lost"):
        state = "waiting"
    return [name, state, *rest]


def _job_text(row: Row) -> str:
    return "" if row.job is None else f"{row.job.app} {row.job.state}"
