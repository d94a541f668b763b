"""Why an attempt failed: the fault that came first, not the ones that it caused elsewhere; and of what kind it is."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlrmx.runs.events import read_events
from dlrmx.runs.kinds import Evidence, Kind, kind_of
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.lines import Line, last_line, read_lines
from dlrmx.runs.records import is_record

LOST = "lost"
KILLED = "killed"
HUNG = "hung"
# Causes that came from outside: they say nothing about what the next attempt will meet.
EXTERNAL = (LOST, KILLED)


@dataclass(frozen=True)
class Cause:
    """One failure. `rank` is None where no worker is to blame; `step` where training had not begun."""

    rank: int | None
    host: str
    step: int | None
    cause: str
    message: str
    exit_code: int = 1

    def __str__(self) -> str:
        who = f"{'the node process' if self.rank is None else f'rank {self.rank}'} on {self.host}"
        when = "" if self.step is None else f" at step {self.step:,}"
        if self.cause in EXTERNAL and self.message:  # the message says who it was and that it was killed or lost
            return f"{self.host if self.rank is None else who}{when}: {self.message}"
        return f"{who}{when}: {self.cause}" + (f": {self.message}" if self.message else "")


def first_cause(attempt: AttemptPaths) -> Cause | None:
    """The earliest primary failure; else the earliest secondary one; else that the attempt ended without a word.

    None where nothing failed. Ask for an attempt that has ended: of a live one, only its `failed` events count.
    """
    events = read_events(attempt)
    failures = [event for event in events if event["event"] == "failed"]
    if failures:
        return _cause(min(failures, key=lambda event: (not event.get("primary", True), event["time"])))
    if not events or any(event["event"] in ("attempt_ended", "finished", "stopped") for event in events):
        return None
    claimed = events[0]
    message = f"its node process (pid {claimed['pid']}) was killed or its machine went down"
    return Cause(None, claimed["host"], last_step(attempt), LOST, message)


def last_step(attempt: AttemptPaths) -> int | None:
    """The last step that the attempt tells of, None where training had not begun."""
    lines: list[Line] = read_events(attempt)
    if record := last_line(attempt.records):
        lines.append(record)
    return max((line["step"] for line in lines if isinstance(line.get("step"), int)), default=None)


@dataclass(frozen=True)
class Diagnosis:
    """What became of a run that failed. attempt: the newest that failed, None where none began; tries: commands."""

    attempt: int | None
    kind: str
    about: str
    tries: tuple[str, ...]


def diagnose(run: RunPaths, reason: str, words: str, evaluates: str | None = None) -> Diagnosis | None:
    """Of what kind the newest failed attempt's fault was; None where nothing is known of one.

    reason: how run.json says that the run ended, or what its scheduler says; words: what to call the run in commands.
    """
    failed = next(failed_attempts(run), None)
    if failed is None and not reason:
        return None
    evidence = Evidence(reason, reason) if failed is None else _evidence(*failed, reason)
    kind = kind_of(evidence)
    return Diagnosis(
        failed[0].number if failed else None, kind.name, kind.about(evidence), _tries(run, kind, words, evaluates)
    )


def _tries(run: RunPaths, kind: Kind, words: str, evaluates: str | None) -> tuple[str, ...]:
    """The commands that can be given: a run that never began has nothing to go on with, one without checkpoints no
    weights to take along, an evaluation no options."""
    written = (run.recipe, *(attempt.recipe for attempt in run.attempts()))
    recipes = [recipe for recipe in written if recipe.is_file()]
    again = f"dlrmx evaluate {evaluates}" if evaluates else f"dlrmx resume {words}"
    names = {"run": words, "again": again, "recipe": str(recipes[-1]) if recipes else "RECIPE"}
    kept = [text for text in kind.tries if recipes or not text.startswith("{again}")]
    kept = [text for text in kept if not evaluates or not text.startswith("{again} ")]
    if not any(run.checkpoints.glob("step-*")):
        kept = [text.replace(" -s train.init_from={run}", "") for text in kept]
    return tuple(text.format(**names) for text in kept) or (f"dlrmx logs {words}",)


def failed_attempts(run: RunPaths) -> Iterator[tuple[AttemptPaths, Cause]]:
    """The attempts that failed, newest first, each with its first cause. Ask of a run that has ended."""
    for attempt in reversed(run.attempts()):
        if (cause := first_cause(attempt)) is not None:
            yield attempt, cause


def _evidence(attempt: AttemptPaths, cause: Cause, reason: str) -> Evidence:
    failures = [_cause(event) for event in read_events(attempt, "failed")]
    hosts = {event["rank"]: event["host"] for event in read_events(attempt, "worker_started")}
    steps = [record for record in read_lines(attempt.records) if is_record(record) and "rss_bytes" in record]
    # Of a rank that is dead or hangs its node's process tells.
    spoke = {one.rank for one in failures if one.rank is not None and one.cause not in (*EXTERNAL, HUNG)}
    world, per_node, tables = _plan(attempt, cause.rank)
    return Evidence(
        said=f"{cause.cause}: {cause.message}\n{reason}" + ("\nexit code 2" if cause.exit_code == 2 else ""),
        others="\n".join([f"{one.cause}: {one.message}" for one in failures]),
        rank=cause.rank,
        step=cause.step,
        hosts=hosts,
        spoke=frozenset(spoke),
        rss_bytes=steps[-1]["rss_bytes"] if steps else None,
        rss_step=steps[-1].get("step") if steps else None,
        clamped=steps[-1].get("clamped") or {} if steps else {},
        workers=min(world, per_node) if world and per_node else None,
        tables=tables,
    )


def _plan(attempt: AttemptPaths, rank: int | None) -> tuple[int, int, dict[str, int]]:
    """(ranks, ranks of a node, bytes of the weights that `rank` holds by table) of the attempt's plan.json."""
    try:
        plan = json.loads(attempt.plan.read_bytes())
        tables = {name: _bytes_on(table, rank) for name, table in plan["tables"].items()} if rank is not None else {}
        return plan["world"], plan["ranks_per_node"], {name: size for name, size in tables.items() if size}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0, 0, {}  # it never got one


def _bytes_on(table: dict[str, Any], rank: int) -> int:
    """Bytes of a table's weights on a rank; strips are [row_start, row_end, col_start, col_end, first, ranks, ...]."""
    size = 2 if table["dtype"] == "fp16" else 4
    if table["kind"] == "data_parallel":
        return int(table["rows"] * table["dim"] * size)
    mine = [strip for strip in table["strips"] if strip[4] <= rank < strip[4] + strip[5]]
    return sum((strip[1] - strip[0]) * (strip[3] - strip[2]) * size // strip[5] for strip in mine)


def _cause(event: dict[str, Any]) -> Cause:
    return Cause(
        rank=event.get("rank"),
        host=event["host"],
        step=event.get("step"),
        cause=event.get("cause", "failed"),
        message=event.get("message", ""),
        exit_code=event.get("exit_code", 1),
    )
