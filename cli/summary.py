"""What is said of a run at rest: its state, how it ended, what to do next."""

import time
from collections.abc import Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dlrmx.units import format_duration, format_number_of

from .failure import diagnosis_of, failure_lines, good_checkpoint
from .live import evaluation_text
from .output import WIDTH
from .runs import words_for

if TYPE_CHECKING:
    from dlrmx.runs.layout import RunPaths
    from dlrmx.runs.state import RunState

CHANCE = 0.005
HOSTS_SHOWN = 8


def state_json(state: "RunState") -> dict[str, Any]:
    """A run's state for programs; docs/cli.md lists the keys."""
    from dataclasses import asdict

    return {**asdict(state), "dir": str(state.dir)}


def run_row(state: "RunState") -> list[str]:
    """run, state, step, age, path."""
    age = format_duration(max(time.time() - state.created, 0.0))
    return [state.name, _state_words(state), _steps(state), age, str(state.dir)]


def newest_evaluation(run: "RunPaths") -> Mapping[str, Any] | None:
    """The run's newest evaluation record; None before the first."""
    from dlrmx.runs.records import read_records

    evaluations = (record for record in reversed(read_records(run)) if record["kind"] == "evaluation")
    return next(evaluations, None)


def file_evaluations(run: "RunPaths") -> list[Mapping[str, Any]]:
    """The records of the newest evaluation file by file, where several files were evaluated; else none."""
    from dlrmx.runs.records import read_records

    found = {record["file"]: record for record in read_records(run) if record["kind"] == "file_evaluation"}
    return list(found.values()) if len(found) > 1 else []


def status_text(run: "RunPaths", state: "RunState", evaluation: Mapping[str, Any] | None) -> str:
    """The state and what is wrong on the first line; then job, cause, quality, checkpoint, place, next command."""
    found = diagnosis_of(run, state)
    phase = f"  {state.phase}" if state.phase and state.state in ("running", "stopping") else ""
    lines = [f"{state.name}: {_state_words(state)}{phase}  step {_steps(state)}  attempt {state.attempt}"]
    lines.extend(_job_lines(run, state))
    lines.extend(_failed_save(run, state))
    if found is not None:
        lines.extend(failure_lines(run, state, found))
    elif why := state.reason or state.first_cause:
        lines.append(f"{'ended by   ' if state.ended else 'before this'}  {str(why).replace(chr(10) + 4 * ' ', '; ')}")
    if evaluation:
        split, step = evaluation["split"], evaluation["step"]
        lines.append(f"evaluation   {split} at step {step:,}: {evaluation_text(evaluation)}")
        lines.extend(_at_chance(evaluation))
    lines.extend(_costs(run))
    checkpoint = _checkpoint(run, state) if found is None else good_checkpoint(run, state)
    lines.append(f"evaluates    {state.evaluates}" if state.evaluates else f"checkpoint   {checkpoint}")
    lines.append(f"path         {state.dir}")
    if found is None:
        lines.append("next         " + f"\n{'':13}".join(_next(state)))
    else:
        lines.extend(["what to try:", *(f"  {text}" for text in found.tries)])
    return "\n".join(lines)


def job_text(state: "RunState") -> str:
    """'job 7 on lab'; empty for a run of this machine."""
    if state.job is None:
        return ""
    return state.job.called + (f" on {state.job.cluster}" if state.job.cluster else "")


def _job_lines(run: "RunPaths", state: "RunState") -> list[str]:
    """A cluster's job, what its scheduler says, and its nodes; of a run that nobody will begin, that."""
    from dlrmx.runs.state import never_begun

    from .attached import NEVER_BEGUN

    if state.job is None:
        return [f"job          none: {NEVER_BEGUN}"] if never_begun(run) else []
    said = "" if state.state in ("done", "stopped", "failed") else state.job.words or state.job.state
    job = job_text(state).removeprefix("job ") if state.job.app else "not known"
    hosts = ", ".join(state.hosts[:HOSTS_SHOWN])
    more = f" and {len(state.hosts) - HOSTS_SHOWN} more" if len(state.hosts) > HOSTS_SHOWN else ""
    nodes = [f"nodes        {hosts}{more}"] if hosts and state.state != "waiting" else []
    return [f"job          {job}: {said}" if said else f"job          {job}", *nodes]


def _costs(run: "RunPaths") -> list[str]:
    from dataclasses import asdict

    from dlrmx.runs.costs import read_costs

    from .report import cost_notes, costs_text

    costs = read_costs(run)
    notes = [f"{'':13}{line}" for note in cost_notes(asdict(costs)) for line in wrap(note, WIDTH - 13)]
    return [f"costs        {costs_text(costs)}", *notes] if costs.known else []


def done_text(run: "RunPaths", state: "RunState", evaluation: Mapping[str, Any] | None) -> str:
    """What a finished run has to show: quality, checkpoint, next commands."""
    lines = [f"{state.name} is done at step {state.step or 0:,}"]
    if evaluation:
        lines.append(f"{evaluation['split']}: {evaluation_text(evaluation)}")
        lines.extend(f"{record['file']}: {evaluation_text(record)}" for record in file_evaluations(run))
        lines.extend(_at_chance(evaluation))
    if state.checkpoint is not None:
        lines.append(f"checkpoint: {_checkpoint(run, state)}")
    return "\n".join([*lines, "next:", *(f"  {command}" for command in _next(state))])


def _at_chance(evaluation: Mapping[str, Any]) -> list[str]:
    """A warning where nothing was learned: a loss that looks well may hide it (constant predictions have AUC 0.5)."""
    auc = evaluation.get("auc")
    if auc is None or abs(auc - 0.5) > CHANCE:
        return []
    return ["warning: this AUC is that of chance: look at the labels and features, and try other learning rates"]


def stopped_text(state: "RunState") -> str:
    """How to go on with a run that was stopped."""
    at = "nothing was saved yet" if state.checkpoint is None else f"saved at step {state.checkpoint:,}"
    return f"{at}, resume with: dlrmx resume {_words(state)}"


def _state_words(state: "RunState") -> str:
    """The state, and what is easily missed while training goes on."""
    live = not state.ended
    counts = (
        (state.saves_failed, "save", "FAILED"),
        (state.steps_repeated if live else 0, "step", "repeated"),
        (state.nodes_lost if live else 0, "node", "lost"),
    )
    parts = (f"{format_number_of(count, what)} {how}" for count, what, how in counts if count)
    return ", ".join([state.state, *parts])


def _steps(state: "RunState") -> str:
    """An attempt that has not begun yet will go on from the newest checkpoint."""
    step = f"{(state.checkpoint if state.step is None else state.step) or 0:,}"
    return step if state.total_steps is None else f"{step} of {state.total_steps:,}"


def _checkpoint(run: "RunPaths", state: "RunState") -> str:
    from dlrmx.runs.claim import is_copy

    if state.checkpoint is None:
        return "none yet"
    path = run.checkpoint(state.checkpoint)
    return f"{path.name}, which its pods see" if is_copy(run) else str(path)


def _failed_save(run: "RunPaths", state: "RunState") -> list[str]:
    from dlrmx.runs.events import read_events

    if not state.saves_failed:
        return []
    last = read_events(run.attempts()[-1], "save_failed")[-1]
    return [f"failed save  step {last['step']:,}: {last['reason']}"]


def _next(state: "RunState") -> list[str]:
    """Commands that make sense now."""
    name = _words(state)
    match state.state:
        case "created" | "waiting" | "running":
            return [f"dlrmx watch {name}", f"dlrmx cancel {name}"]
        case "stopping":
            return [f"dlrmx watch {name}"]
        case "done" if state.evaluates:
            return [f"dlrmx report {name}"]
        case "done" if state.is_copy:
            return [f"dlrmx report {name}", f"dlrmx logs {name}"]
        case "done":
            return [f"dlrmx report {name}", f"dlrmx evaluate {name}", f"dlrmx checkpoints list {name}"]
        case "stopped" if not state.evaluates:
            return [f"dlrmx resume {name}", *([f"dlrmx report {name}"] if state.attempt else [])]
        case _:  # an evaluation that was stopped, or what no attempt tells of
            again = f"dlrmx evaluate {state.evaluates}" if state.evaluates else f"dlrmx resume {name}"
            return [f"dlrmx logs {name}", *([again] if state.attempt else [])]


def _words(state: "RunState") -> str:
    from dlrmx.runs.layout import RunPaths

    return words_for(RunPaths(state.dir))
