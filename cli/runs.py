"""The verbs on runs: runs, status, watch, logs, report, cancel. All of them read the run's files only."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .output import print_json, print_result, say, screen_width, table

if TYPE_CHECKING:
    from dlrmx.runs.layout import RunPaths
    from dlrmx.runs.state import Job, RunState


def runs(
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Ask this cluster's scheduler.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="With --cluster: also those that have ended.")] = False,
    json: options.Json = False,
) -> None:
    """List the runs known here, or those of a cluster."""
    from dlrmx.errors import InputError
    from dlrmx.runs.registry import all_runs

    from .summary import run_row, state_json

    if cluster is not None:
        _cluster_runs(cluster, ended=all_, json=json)
        return
    if all_:
        raise InputError("--all goes with --cluster", hint="without it, all runs that are known here are listed")

    found = [state for run in all_runs(_local_root()) if (state := state_or_word(run))]
    if json:
        print_json(runs=[state_json(state) for state in found])
    elif found:
        rows = [run_row(state) for state in found]
        print_result(table(["run", "state", "step", "age", "path"], rows, right=["step"], width=screen_width()))
    else:
        say("no runs yet; begin with: dlrmx train quickstart")


def _cluster_runs(cluster: str, *, ended: bool, json: bool) -> None:
    from dlrmx.recipe.clusters import find_profile

    from .cluster_runs import cluster_rows, row_json, rows_text

    rows = cluster_rows(find_profile(cluster), ended=ended)
    if json:
        print_json(runs=[row_json(row) for row in rows])
    elif rows:
        print_result(rows_text(rows))
    else:
        say(f"no runs of yours on {cluster}" if ended else f"no runs of yours wait or run on {cluster}; see --all")


def status(run: options.Run = None, json: options.Json = False) -> None:
    """Show what a run is doing, or how it ended."""
    from .failure import diagnosis_json
    from .summary import newest_evaluation, state_json, status_text

    paths = find(run)
    state = _asked(paths)
    evaluation = newest_evaluation(paths)
    if json:
        print_json(**state_json(state), diagnosis=diagnosis_json(paths, state), evaluation=evaluation)
    else:
        print_result(status_text(paths, state, evaluation))


def _asked(run: "RunPaths") -> "RunState":
    """The run's state; its scheduler is asked where the files alone do not tell."""
    from dlrmx.errors import ClusterError
    from dlrmx.runs.state import run_state

    state = run_state(run)
    if state.job is None:
        return state
    from dlrmx.launch.submit import asked

    try:
        return asked(run)
    except ClusterError as error:
        say(f"{run.name} as its files have it: {error}")
        return state


def watch(run: options.Run = None) -> None:
    """Follow a live run; Ctrl-C leaves it running. Ends with the run's exit code."""
    from dlrmx.runs.state import run_state

    from .attached import detached_text, exit_code_of, watch_run
    from .summary import newest_evaluation, status_text

    paths = find(run)
    ended = watch_run(paths)
    state = run_state(paths)
    if not ended:
        say(detached_text(state))
        return
    print_result(status_text(paths, state, newest_evaluation(paths)))
    raise typer.Exit(exit_code_of(state))


def logs(
    run: options.Run = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows, until the run ends.")] = False,
) -> None:
    """Print the log of a run's newest attempt."""
    from .attached import over_of
    from .follow import follow_logs, log_files, logs_words

    paths = find(run)
    for line in logs_words(paths):
        say(line)
    if follow:
        follow_logs(paths, print_result, over=over_of(paths))
        return
    for file in log_files(paths):
        print_result(file.read_text(errors="replace").rstrip("\n"))


def report(runs: options.Runs = None, json: options.Json = False) -> None:
    """Compare runs by their newest evaluation on each split."""
    from dlrmx.runs.records import foreign_lines

    from .report import cost_rows, cost_table, report_rows, report_table

    wanted: list[str | None] = [*runs] if runs else [None]
    found = [find(text) for text in wanted]
    for word in (word for paths in found for word in foreign_lines(paths)):
        say(f"left out: {word}")
    rows = [row for paths in found for row in report_rows(paths)]
    costs = [row for paths in found for row in cost_rows(paths)]
    if json:
        print_json(evaluations=rows, costs=costs)
        return
    if not rows:
        say("no evaluations yet; see: dlrmx status")
    parts = [*([report_table(rows)] if rows else []), *([cost_table(costs)] if costs else [])]
    if parts:
        print_result("\n\n".join(parts))


def cancel(run: options.Run = None) -> None:
    """Ask a live run to save and stop; it can be resumed."""
    from dlrmx.launch.submit import cancel as cancel_run
    from dlrmx.runs.state import run_state

    paths = find(run)
    job = run_state(paths).job
    called = "" if job is None else job.called
    match cancel_run(paths):
        case "stops":
            say(f"{paths.name} saves and stops; follow it with: dlrmx watch {words_for(paths)}")
        case "taken back":
            say(f"{paths.name} was waiting: {called} is taken back; go on with: dlrmx resume {words_for(paths)}")
        case _:
            say(f"{called} of {paths.name} is being ended; follow it with: dlrmx watch {words_for(paths)}")


def find(run: str | None) -> "RunPaths":
    """The run that the words mean, brought up to date where it is a copy of one elsewhere."""
    return _up_to_date(_meant(run))


def _meant(run: str | None) -> "RunPaths":
    """The run that the words mean. A run of that very name in this folder's root wins over those elsewhere."""
    from dlrmx.errors import UnknownRun
    from dlrmx.runs.layout import RunPaths
    from dlrmx.runs.registry import find_run

    root = _local_root()
    here = RunPaths(root / run) if run is not None else None
    if here is not None and here.run.is_file():
        return here
    try:
        return find_run(run, root)
    except UnknownRun:
        if run is None or (found := _in_a_cluster(run)) is None:
            raise
        return found


def _in_a_cluster(name: str) -> "RunPaths | None":
    """A run of that very name in the root of one of the profiles that are found here: another machine submitted it."""
    from dlrmx.errors import InputError
    from dlrmx.recipe.clusters import find_profile, profile_files
    from dlrmx.runs.layout import RunPaths
    from dlrmx.runs.registry import seen_root

    for profile in profile_files():
        with suppress(InputError, OSError):
            run = RunPaths(seen_root(find_profile(profile)) / name)
            if run.run.is_file():
                return run
    return None


def _up_to_date(run: "RunPaths") -> "RunPaths":
    """A copy of a run elsewhere, with what that has told since; as it was, where the cluster is out of reach."""
    from dlrmx.errors import ClusterError
    from dlrmx.runs.claim import is_copy

    if is_copy(run):
        from dlrmx.launch.mirror import refresh

        try:
            refresh(run)
        except (ClusterError, OSError) as error:
            say(f"{run.name} as it was last heard of: {error}")
    return run


def words_for(run: "RunPaths") -> str:
    """What to call the run in a command given here: its name, or its path where the name means another or several."""
    from dlrmx.errors import DlrmxError

    try:
        return run.name if _meant(run.name).dir == run.dir else str(run.dir)
    except DlrmxError:
        return str(run.dir)


def state_or_word(run: "RunPaths", job: "Job | None" = None) -> "RunState | None":
    """The run's state; of one that cannot be read a word on stderr, so that it does not hide the others."""
    from dlrmx.errors import UnknownRun
    from dlrmx.runs.state import run_state

    try:
        return run_state(run, job)
    except UnknownRun as error:
        say(f"left out: {error}")
        return None


def _local_root() -> Path:
    """Where runs of the local profile lie."""
    from dlrmx.recipe.clusters import find_profile

    return Path(find_profile("local").root)
