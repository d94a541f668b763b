"""Follows a run through its files: hands what its attempts write to a view, in order, until the run has ended."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from dlrmx.runs.events import is_event
from dlrmx.runs.records import is_record

from .live import View
from .output import say
from .progress import Entry, Progress, fold, phases_text

if TYPE_CHECKING:
    from dlrmx.runs.layout import AttemptPaths, RunPaths

POLL_S = 0.2


@dataclass
class Tail:
    """Reads a growing file of lines: each call gives the complete lines since the last one."""

    path: Path
    _offset: int = 0

    def lines(self) -> list[str]:
        """Complete new lines; none while the file does not exist."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read()
        except FileNotFoundError:
            return []
        complete = chunk[: chunk.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.decode(errors="replace").splitlines()


@dataclass
class AttemptTail:
    """New events and records of one attempt, in the order of their times."""

    attempt: "AttemptPaths"
    _files: list[Tail] = field(init=False)

    def __post_init__(self) -> None:
        self._files = [Tail(self.attempt.events), Tail(self.attempt.records)]

    def entries(self) -> list[Entry]:
        """Entries since the last call; a line that a crash tore is skipped."""
        found = [entry for file in self._files for line in file.lines() if (entry := _parsed(line)) is not None]
        return sorted(found, key=lambda entry: entry["time"])


def _parsed(line: str) -> Entry | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and (is_event(entry) or is_record(entry)) else None


@dataclass
class RunTail:
    """New entries of a run, over its attempts from number `first` on."""

    run: "RunPaths"
    first: int = 1
    _tails: list[AttemptTail] = field(default_factory=list)

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """(attempt number, entry) of everything written since the last call, oldest attempt first."""
        known = {tail.attempt.number for tail in self._tails}
        new = [path for path in self.run.attempts() if path.number >= self.first and path.number not in known]
        self._tails.extend(AttemptTail(path) for path in new)
        for tail in self._tails:
            for entry in tail.entries():
                yield tail.attempt.number, entry


class Interrupts:
    """Counts Ctrl-C while it is entered, so that none tears what runs."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Interrupts":
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def follow(
    run: "RunPaths",
    view: View,
    *,
    first: int,
    over: Callable[[], bool],
    interrupted: Callable[[int], bool],
    waits: Callable[[], str] = str,
) -> bool:
    """Show the run's attempts from `first` on until `over()`: True; or until `interrupted(n)`, n-th Ctrl-C: False.

    waits: what the run waits for, empty while it runs.
    """
    tail = RunTail(run, first)
    shown, told = 0, 0
    with Interrupts() as interrupts, _kept_up(run, view.note):
        while True:
            last = over()  # asked before the files are read, so that the run's last words are shown
            shown = _show_new(tail, view, shown)
            view.wait(waits())
            if last:
                return True
            heard = interrupts.count
            if any(interrupted(number) for number in range(told + 1, heard + 1)):
                return False
            told = heard
            time.sleep(POLL_S)


def _show_new(tail: RunTail, view: View, shown: int) -> int:
    """Show what was written since; `shown` and the result: the attempt that was shown last."""
    for number, entry in tail.entries():
        if number != shown:
            shown = number
            view.begin(number)
        view.show(entry)
    return shown


def _kept_up(run: "RunPaths", told: Callable[[str], Any]) -> AbstractContextManager[None]:
    """A copy of a run elsewhere grows meanwhile."""
    from dlrmx.runs.claim import is_copy

    if not is_copy(run):
        return nullcontext()
    from dlrmx.launch.mirror import mirrored

    return mirrored(run, told)


def log_files(run: "RunPaths", first: int = 0) -> list[Path]:
    """The nodes' logs of the newest attempt, or of those from `first` on; before there is one, what the launch said."""
    attempts = [attempt for attempt in run.attempts() if attempt.number >= first] if first else run.attempts()[-1:]
    logs = [path for attempt in attempts for path in sorted(attempt.logs.glob("*.log"))]
    return logs or [path for path in [run.launch_log] if path.is_file()]


def logs_words(run: "RunPaths") -> Iterator[str]:
    """Where a run's output is, and what its newest attempt did when: a run that goes well prints little."""
    yield f"launch: {run.launch_log}"
    if not (attempts := run.attempts()):
        return
    newest = attempts[-1]
    progress = Progress(newest.number)
    for entry in AttemptTail(newest).entries():
        progress = fold(progress, entry)
    yield f"attempt {newest.number}: {newest.logs}"
    if progress.spent:
        yield f"phases: {phases_text(progress)}; all that happened: {newest.events}"


def follow_logs(run: "RunPaths", show: Callable[[str], Any], *, over: Callable[[], bool]) -> None:
    """Show the log lines of the run's newest attempt, and of later ones, until `over()` or Ctrl-C."""
    tails: dict[Path, Tail] = {}
    first = max((attempt.number for attempt in run.attempts()), default=1)
    with Interrupts() as interrupts, _kept_up(run, say):
        while True:
            last = over()
            files = [tails.setdefault(file, Tail(file)) for file in log_files(run, first)]
            for line in (line for file in files for line in file.lines()):
                show(line)
            if last or interrupts.count:
                return
            time.sleep(POLL_S)
