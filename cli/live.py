"""How a run looks while it is followed: a live display on a terminal, else one line per record."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from dlrmx.units import format_bytes, format_count, format_duration, format_metric, format_rate

from .output import printable, say, stderr_is_terminal
from .progress import Entry, Progress, fold

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_S = 1.0
PHASES = ("prepare", "plan", "start", "train", "evaluate", "save")


class View(Protocol):
    """Shows the entries of a run's attempts as they come."""

    def begin(self, attempt: int) -> None:
        """A new attempt starts."""

    def show(self, entry: Entry) -> None:
        """One more event or record of the attempt."""

    def wait(self, text: str) -> None:
        """What the run waits for; empty while it runs."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:
        """Nothing more comes."""


@contextmanager
def open_view() -> Iterator[View]:
    """The view that fits stderr, closed at the end."""
    view = TerminalView() if stderr_is_terminal() else PlainView()
    try:
        yield view
    finally:
        view.close()


class PlainView:
    """One line per phase, record, evaluation and save: for pipes, CI and batch logs."""

    def __init__(self) -> None:
        self._progress = Progress(attempt=1)
        self._told = {self._progress.phase}  # evaluations and saves have lines of their own: a phase is told once
        self._tenth = ("", -1)
        self._waits = ""

    def begin(self, attempt: int) -> None:
        self._progress = Progress(attempt)
        if attempt > 1:
            say(f"attempt {attempt}")

    def show(self, entry: Entry) -> None:
        self._progress = fold(self._progress, entry)
        if self._progress.phase not in self._told:
            self._told.add(self._progress.phase)
            say(self._progress.phase)
        if entry.get("event") == "progress":
            self._show_tenth(entry)
        elif line := entry_line(entry, self._progress):
            say(line)

    def _show_tenth(self, entry: Entry) -> None:
        """One line per tenth of a long phase, so that a log stays short."""
        tenth = (entry["what"], 10 * entry["done"] // entry["total"] if entry.get("total") else 0)
        if tenth != self._tenth:
            self._tenth = tenth
            say(self._progress.doing)

    def wait(self, text: str) -> None:
        if text and text != self._waits:
            say(text)
        self._waits = text

    def note(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        pass


class TerminalView:
    """A display of a few lines at the bottom of the terminal; lines that stay scroll above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._progress = Progress(attempt=1)
        self._waits = ""
        self._live = Live(console=Console(stderr=True), refresh_per_second=4, get_renderable=self._render)
        self._live.start()

    def begin(self, attempt: int) -> None:
        self._progress = Progress(attempt, saves_failed=self._progress.saves_failed)
        if attempt > 1:
            self.note(f"attempt {attempt}")

    def show(self, entry: Entry) -> None:
        self._progress = fold(self._progress, {"time": time.time(), **entry})
        if entry.get("kind") != "step" and (line := entry_line(entry, self._progress)):
            self.note(line)

    def wait(self, text: str) -> None:
        self._waits = text

    def note(self, text: str) -> None:
        self._live.console.print(printable(text), markup=False, highlight=False)

    def close(self) -> None:
        # The last numbers stay; a row of phases, or what it waited for, would tell nothing.
        self._live.transient = bool(self._waits) or not self._progress.record
        self._live.stop()

    def _render(self) -> "RenderableType":
        return render_waiting(self._progress, self._waits) if self._waits else render(self._progress, time.time())


def render(progress: Progress, now: float = 0.0) -> "RenderableType":
    """The live display: phases with their times, quality, speed and cost of the newest record, the bar, time left."""
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = [_phase_line(progress, now)]
    if progress.doing:
        lines.append(Text(f"  {printable(progress.doing)}"))
    if progress.record:
        texts = map(printable, record_texts(progress.record))
        lines.extend(Text(f"  {text}", overflow="ellipsis", no_wrap=True) for text in texts)
    if progress.total_steps:  # last, as it is short: the ^C that a terminal writes behind a full line tears the display
        lines.append(_bar_line(progress, progress.total_steps))
    if progress.saves_failed:
        lines.append(Text(f"  {progress.saves_failed} saves failed; see `dlrmx status`", style="red"))
    return Group(*lines)


def render_waiting(progress: Progress, waits: str) -> "RenderableType":
    """What a run waits for that does not run now, and how far it is."""
    from rich.console import Group
    from rich.text import Text

    line = Text(" waiting ", style="bold reverse").append(f"  {printable(waits)}", style="not bold not reverse")
    if not progress.total_steps:
        return line
    return Group(line, Text(f"  so far: step {progress.step:,} of {progress.total_steps:,}"))


def _phase_line(progress: Progress, now: float) -> "RenderableType":
    from rich.text import Text

    line = Text()
    for phase in PHASES:
        seconds = progress.spent.get(phase, 0.0)
        if phase == progress.phase and progress.since is not None:
            seconds += max(0.0, now - progress.since)
        shown = f" {format_duration(int(seconds))}" if seconds >= SHOWN_S else ""
        line.append(f" {phase}{shown} ", style="bold reverse" if phase == progress.phase else "dim")
    if progress.stopping:
        line.append("  stopping: saving first", style="yellow")
    return line


def _bar_line(progress: Progress, total_steps: int) -> "RenderableType":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    left = progress.seconds_left
    line = Table.grid(padding=(0, 1))
    line.add_row(
        " ",
        ProgressBar(total=total_steps, completed=progress.step, width=40),
        f"step {progress.step:,} of {total_steps:,}",
        "" if left is None else f"{format_duration(left)} left",
    )
    return line


def record_texts(record: Entry) -> list[str]:
    """A step's record in three lines: quality and speed, rates and memory, bytes exchanged (most first)."""
    loss, ne, auc = (format_metric(record.get(key)) for key in ("loss", "ne", "auc"))
    sent = record.get("bytes") or {}
    kinds = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in sorted(sent.items(), key=lambda kind: -kind[1]))
    lr = f"lr {format_rate(record.get('lr_dense'))} dense, {format_rate(record.get('lr_sparse'))} sparse"
    memory = f"process memory {format_bytes(record.get('rss_bytes') or 0)} a rank"
    clamped = _clamped(record)
    return [
        f"loss {loss}  NE {ne}  AUC {auc}  {format_count(record.get('samples_per_s') or 0)} samples/s",
        f"{lr}  {memory}",
        f"exchange {format_bytes(sum(sent.values()))} a step and rank: {kinds}{clamped and f'; {clamped}'}",
    ]


def _clamped(record: Entry) -> str:
    """Numbers outside of what their wire format can say, since the record before; empty where there were none."""
    clamped = {kind: count for kind, count in (record.get("clamped") or {}).items() if count}
    return "clamped " + ", ".join(f"{kind} {count:,}" for kind, count in clamped.items()) if clamped else ""


def entry_line(entry: Entry, progress: Progress) -> str:
    """One line for an event or record that is worth one; else empty."""
    if entry.get("kind") == "step":
        return _step_line(entry, progress)
    if entry.get("kind") == "evaluation":
        return f"evaluate {entry['split']} at step {entry['step']:,}: {evaluation_text(entry)}"
    match entry.get("event"):
        case "saved":
            size, seconds = format_bytes(entry["bytes"]), format_duration(entry["seconds"])
            return f"saved step {entry['step']:,} ({size} in {seconds})"
        case "save_failed":
            return f"save of step {entry['step']:,} failed: {entry['reason']}"
        case "begin" if entry["step"]:
            return f"going on from step {entry['step']:,}"
        case "stop_requested":
            return "stop requested"
        case "failed" if entry.get("primary") and _is_news(entry, progress.failure):
            return _failure_line(entry)
        case _:
            return ""


def _is_news(failure: Entry, first: Entry) -> bool:
    """What fails on every rank alike is told once."""
    return failure is first or failure.get("message") != first.get("message")


def _failure_line(entry: Entry) -> str:
    """Who failed and why; the rest of a longer message is told at the end."""
    who = "the node process" if entry.get("rank") is None else f"rank {entry['rank']}"
    when = "" if entry.get("step") is None else f" at step {entry['step']:,}"
    return f"{who} failed{when}: {str(entry.get('message')).partition(chr(10))[0]}"


def evaluation_text(entry: Entry) -> str:
    """Loss, NE and AUC of an evaluation, and the planted optimum where it is known."""
    optimum = entry.get("optimum_ne")
    known = "" if optimum is None else f" (planted optimum {format_metric(optimum)})"
    return (
        f"loss {format_metric(entry.get('loss'))}  NE {format_metric(entry.get('ne'))}{known}"
        f"  AUC {format_metric(entry.get('auc'))}  over {entry['rows']:,} rows"
    )


def _step_line(entry: Entry, progress: Progress) -> str:
    total = "" if progress.total_steps is None else f"/{progress.total_steps}"
    left = progress.seconds_left
    sent = sum((entry.get("bytes") or {}).values())
    parts = [
        f"step {entry['step']}{total}",
        f"loss {format_metric(entry.get('loss'))}",
        f"NE {format_metric(entry.get('ne'))}",
        f"AUC {format_metric(entry.get('auc'))}",
        f"lr {format_rate(entry.get('lr_dense'))}",
        f"{format_count(entry.get('samples_per_s') or 0)} samples/s",
        f"exchange {format_bytes(sent)}/step",
        f"memory {format_bytes(entry.get('rss_bytes') or 0)}",
        *([clamped] if (clamped := _clamped(entry)) else []),
        *([] if left is None else [f"{format_duration(left)} left"]),
    ]
    return "  ".join(parts)
