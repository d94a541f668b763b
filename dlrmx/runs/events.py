"""What happened in an attempt: phases, saves, failures, stop requests, one JSON line each.

claimed                                          the attempt's folder exists
phase{phase}                                     prepare, plan, start, train, evaluate, save
progress{phase, what, done, total}               how far a long phase is (total may be null)
worker_started{rank, rss_bytes}                  pid and host are those of the worker, before it built anything
begin{step, epoch, row, total_steps}             training goes on from here
saving{step} saved{step, bytes, seconds} save_failed{step, reason}
stop_requested{by} stopped{step} finished{step}
failed{rank, step, cause, message, primary}      primary: the fault itself, not what it did to others;
                                                 exit_code 2 where trying again would not help (bad input)
attempt_ended{outcome, step}                     done, stopped or failed; written by the node process, last
gave_up{reason}                                  no further attempt
"""

import os
import socket
import time
from typing import Any

from dlrmx.runs.layout import AttemptPaths
from dlrmx.runs.lines import Line, append_line, read_lines


def append_event(attempt: AttemptPaths, event: str, **fields: Any) -> bool:
    """Write {time, event, host, pid, **fields}; False where it could not be written (disk full)."""
    head = {"time": time.time(), "event": event, "host": socket.gethostname(), "pid": os.getpid()}
    return append_line(attempt.events, {**head, **fields})


def read_events(attempt: AttemptPaths, *names: str) -> list[Line]:
    """The attempt's events in the order they were written, all or only those `names`."""
    events = (line for line in read_lines(attempt.events) if is_event(line))
    return [event for event in events if not names or event["event"] in names]


def is_event(line: Line) -> bool:
    """Whether a line is one of `append_event`'s; what else stands in the file says nothing."""
    head = (("time", int | float), ("event", str), ("host", str), ("pid", int))
    whole = all(isinstance(line.get(name), kind) for name, kind in head)
    return whole and (line["event"] != "begin" or isinstance(line.get("step"), int))


def first_step(events: list[Line]) -> int | None:
    """The step that training began from, or None where it never began."""
    return next((event["step"] for event in events if event["event"] == "begin"), None)
