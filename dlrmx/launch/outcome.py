"""What became of an attempt, read from its events; and a word for workers that died without one."""

import os
import re
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from dlrmx.launch.agent import AgentEnd
from dlrmx.launch.processes import NOT_SEEN, Worker
from dlrmx.launch.retry import Outcome
from dlrmx.runs.diagnosis import EXTERNAL, HUNG, KILLED, first_cause, last_step
from dlrmx.runs.events import append_event, first_step, read_events
from dlrmx.runs.kinds import TIMED_OUT
from dlrmx.runs.layout import AttemptPaths

# torch.distributed.run ends with a table of its workers' exit codes.
EXIT_CODE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+) \(pid: (\d+)\)")
ERROR_LINE = re.compile(r"(?:\[\S+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*)")
LOG_TAIL_BYTES = 65_536
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def outcome_of(attempt: AttemptPaths) -> Outcome:
    """How an ended attempt counts for the retry rule."""
    events = read_events(attempt)
    begun = first_step(events)
    cause = first_cause(attempt)
    saved = [event["step"] for event in events if event["event"] == "saved"]
    return Outcome(
        step_begun=begun,
        step_ended=cause.step if cause and cause.step is not None else last_step(attempt),
        new_checkpoint=any(step > (begun or 0) for step in saved),
        cause=None if cause is None or cause.cause in EXTERNAL else cause.cause,
    )


def note_silent_death(attempt: AttemptPaths, end: AgentEnd, grace_s: float) -> None:
    """Write a `failed` event for what no worker could tell: that it was killed, or crashed before its first word."""
    events = read_events(attempt)
    failed = {event["pid"] for event in events if event["event"] == "failed"}
    if any(event["event"] == "failed" and event.get("primary", True) for event in events):
        return
    table = [Worker(int(rank), int(pid), NOT_SEEN) for rank, _, pid in EXIT_CODE.findall(_tail(attempt.log))]
    seen = {worker.pid for worker in end.gone}
    # Who was never seen alive was dead before those that were.
    dead = [*(worker for worker in table if worker.pid not in seen), *end.gone]
    silent = [worker for worker in dead if worker.pid not in failed]
    step = last_step(attempt)
    if end.ended == "others_over":
        return  # the fault was elsewhere
    if end.ended == "grace_over":
        _failed(attempt, None, step, KILLED, f"did not save within the grace of {grace_s:g} s after the stop request")
    elif end.ended == "killed":
        _failed(attempt, None, step, KILLED, "killed on request, without saving")
    elif end.ended == "itself" and end.returncode < 0:
        name = signal.Signals(-end.returncode).name
        _failed(attempt, None, step, KILLED, f"torch.distributed.run was killed by {name}, and its workers with it")
    elif silent and any(TIMED_OUT.search(event.get("message", "")) for event in events if event["event"] == "failed"):
        worker = silent[0]  # we killed it, as the others were gone
        who = f"pid {worker.pid} on {socket.gethostname()}"
        message = f"{who} did not come to an exchange, and the others' wait was over"
        _failed(attempt, worker.rank, step, HUNG, message)
    elif silent:
        cause, message = _last_words(silent[0], attempt.log)
        _failed(attempt, silent[0].rank, step, cause, message)
    elif not failed:
        log = attempt.log
        cause = _error_line(_tail(log)) or f"torch.distributed.run ended with {end.returncode}"
        _failed(attempt, None, step, cause, f"no worker was seen; see {log}")


def why_unwritten(folder: Path) -> str:
    """What the system says to a file of one block in a folder."""
    probe = folder / f".probe-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    finally:
        probe.unlink(missing_ok=True)
    return "for a while; now it can"


def _failed(attempt: AttemptPaths, rank: int | None, step: int | None, cause: str, message: str) -> None:
    append_event(attempt, "failed", rank=rank, step=step, cause=cause, message=message, primary=True)


def _last_words(worker: Worker, log: Path) -> tuple[str, str]:
    """(cause, message) of a worker that died without a `failed` event."""
    tail = _tail(log)
    code = _exit_codes(tail).get(worker.pid)
    who = f"pid {worker.pid} on {socket.gethostname()}"
    if code is None:
        return KILLED, f"{who} died without a word"
    if code < 0:
        number = signal.Signals(-code)
        memory = ": out of memory?" if number == signal.SIGKILL else ""
        return KILLED if number in FROM_OUTSIDE else number.name, f"{who} was killed by {number.name}{memory}"
    return _error_line(tail) or f"exit code {code}", f"{who} ended with exit code {code}; see {log}"


def _exit_codes(tail: str) -> Mapping[int, int]:
    return {int(pid): int(code) for _, code, pid in EXIT_CODE.findall(tail)}


def _error_line(tail: str) -> str | None:
    """The last line before torchrun's own words that reads like the end of a traceback."""
    lines = tail.partition("torch/distributed/run.py")[0].splitlines()
    matches = (ERROR_LINE.match(line) for line in reversed(lines))
    return next((match[1][:300] for match in matches if match), None)


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
