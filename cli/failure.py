"""What is said of a run that failed: the first cause, of what kind it is, what is left, what to try."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from .runs import words_for

if TYPE_CHECKING:
    from dlrmx.runs.diagnosis import Diagnosis
    from dlrmx.runs.layout import RunPaths
    from dlrmx.runs.state import RunState

LOG_LINES = 15
# More would push the rest off the screen.
EARLIER_SHOWN = 4
# What torch.distributed.run says of a worker that failed: its own traceback and table follow, and tell nothing more.
AGENT_SPEAKS = "] failed (exitcode: "


def diagnosis_of(run: "RunPaths", state: "RunState") -> "Diagnosis | None":
    """Of a run that failed or was lost, or waits for what never comes; None of all others."""
    from dlrmx.runs.diagnosis import diagnose
    from dlrmx.runs.kinds import BAD_IMAGE

    said = "" if state.job is None else state.job.words
    stuck = state.state == "waiting" and BAD_IMAGE.search(said)
    if state.state not in ("failed", "lost") and not stuck:
        return None
    reason = said if stuck else state.reason or said
    reason = reason or ("" if state.attempt else launch_words(run) or "it ended without a word")
    return diagnose(run, reason, words_for(run), state.evaluates)


def diagnosis_json(run: "RunPaths", state: "RunState") -> dict[str, Any] | None:
    """For programs."""
    from dataclasses import asdict

    found = diagnosis_of(run, state)
    return None if found is None else asdict(found)


def failure_lines(run: "RunPaths", state: "RunState", found: "Diagnosis") -> list[str]:
    """For status: what came first and where, what it means, what failed before it."""
    logs = [] if found.attempt is None else [f"logs         {run.attempt(found.attempt).logs}"]
    return [*_first_cause(state, found), f"diagnosis    {found.kind}: {found.about}", *_earlier(run, found), *logs]


def failure_text(run: "RunPaths", state: "RunState") -> str:
    """The first cause first, then its kind, the log's last lines, what is left, and what to try."""
    why = state.reason or state.first_cause or launch_words(run) or "it ended without a word"
    found = diagnosis_of(run, state)
    lines = [f"{state.name} failed: {why}"]
    if found is not None:
        lines.append(f"{found.kind}: {found.about}")
    if tail := _log_tail(run):
        lines += ["last lines of the log:", *(f"  | {line}" for line in tail)]
    if state.attempt and not state.evaluates:
        lines.append(f"newest good checkpoint: {good_checkpoint(run, state)}")
    tries = found.tries if found is not None else (f"dlrmx logs {words_for(run)}",)
    return "\n".join([*lines, "what to try:", *(f"  {text}" for text in tries)])


def good_checkpoint(run: "RunPaths", state: "RunState") -> str:
    """The newest checkpoint that is complete, and how many newer ones are not. Manifests and sizes are read."""
    from dlrmx.checkpoint.retain import list_checkpoints

    if state.is_copy:
        return "none yet" if state.checkpoint is None else f"step {state.checkpoint:,}, which its pods see"
    found = [info for info in list_checkpoints(run) if info.kind == "checkpoint"]
    complete = [info for info in found if info.complete]
    if not complete:
        return f"none: {found[-1].path.name} is damaged" if found else "none yet"
    newer = sum(info.step > complete[-1].step for info in found)
    return str(complete[-1].path) + (f"  ({newer} newer {'is' if newer == 1 else 'are'} damaged)" if newer else "")


def launch_words(run: "RunPaths") -> str:
    """What the node process said before it had an attempt to write to: why it refused."""
    from dlrmx.errors import MOST_SHOWN

    try:
        lines = run.launch_log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-MOST_SHOWN:])


def _first_cause(state: "RunState", found: "Diagnosis") -> Iterator[str]:
    attempt = "" if found.attempt is None else f"attempt {found.attempt}, "
    if state.first_cause is None:
        yield f"first cause  {state.reason or found.about}"
    elif str(state.first_cause) in state.reason:
        yield f"first cause  {attempt}{state.reason}"
    else:
        yield f"first cause  {attempt}{state.first_cause}"
        if state.reason:
            yield f"ended by     {state.reason}"


def _earlier(run: "RunPaths", found: "Diagnosis") -> Iterator[str]:
    """The first causes of the attempts before, a line each."""
    from dlrmx.runs.diagnosis import failed_attempts

    before = ((attempt, cause) for attempt, cause in failed_attempts(run) if attempt.number != found.attempt)
    for attempt, cause in islice(before, EARLIER_SHOWN):
        yield f"earlier      attempt {attempt.number}, {str(cause).partition(chr(10))[0]}"


def _log_tail(run: "RunPaths") -> list[str]:
    from .follow import log_files

    return [line for file in log_files(run) for line in _own_lines(file.read_text(errors="replace"))[-LOG_LINES:]]


def _own_lines(log: str) -> list[str]:
    """A log's lines up to where the agent, after the workers' end, begins to speak."""
    lines = log.splitlines()
    end = next((number for number, line in enumerate(lines) if AGENT_SPEAKS in line), len(lines))
    return lines[:end]
