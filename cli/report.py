"""The evaluations of runs side by side, and what their steps took beside what was predicted."""

from collections.abc import Callable, Mapping
from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dlrmx.units import format_bytes, format_count, format_metric, format_short

from .output import WIDTH, screen_width, table

if TYPE_CHECKING:
    from dlrmx.runs.costs import Costs
    from dlrmx.runs.layout import RunPaths

COLUMNS = ("run", "split", "step", "rows", "loss", "NE", "optimum NE", "AUC", "accuracy", "calibration", "samples/s")
FAR = 1.5  # times; nearer than that, a prediction speaks for itself
METRICS = ("loss", "ne", "optimum_ne", "auc", "accuracy", "calibration")


def report_rows(run: "RunPaths") -> list[dict[str, Any]]:
    """The newest evaluation of each split, with the run's name and mean speed; metrics are null where undefined."""
    from dlrmx.runs.records import read_records

    records = read_records(run)
    newest = {record["split"]: record for record in records if record["kind"] == "evaluation"}
    speed = _mean_speed([record for record in records if record["kind"] == "step"])
    keys = ("split", "step", "rows", *METRICS, "label_mean", "final")
    return [
        {"run": run.name, **{key: record.get(key) for key in keys}, "samples_per_s": speed}
        for record in newest.values()
    ]


def report_table(rows: list[dict[str, Any]]) -> str:
    """One line per run and split; without the column of the optimum where none is known."""
    cells = [
        [
            row["run"],
            row["split"],
            f"{row['step']:,}",
            f"{row['rows']:,}",
            *(_metric_text(key, row[key]) for key in METRICS),
            "" if row["samples_per_s"] is None else format_count(row["samples_per_s"]),
        ]
        for row in rows
    ]
    optimum = COLUMNS.index("optimum NE")
    shown = [column for column in range(len(COLUMNS)) if column != optimum or any(line[optimum] for line in cells)]
    header = [COLUMNS[column] for column in shown]
    cells = [[line[column] for column in shown] for line in cells]
    return table(header, cells, right=header[2:], width=screen_width())


def cost_rows(run: "RunPaths") -> list[dict[str, Any]]:
    """What the run's steps took and what was predicted; nothing for one that did not train."""
    from dataclasses import asdict

    from dlrmx.runs.costs import read_costs

    costs = read_costs(run)
    return [{"run": run.name, **asdict(costs)}] if costs.known else []


def cost_table(rows: list[dict[str, Any]]) -> str:
    """One line per run; empty where nothing is known."""
    header = ("run", "step", "predicted", "memory", "predicted")
    cells = [
        [
            row["run"],
            *(_or_nothing(row[key], format_short) for key in ("step_s", "predicted_step_s")),
            *(_or_nothing(row[key], format_bytes) for key in ("memory_bytes", "predicted_memory_bytes")),
        ]
        for row in rows
    ]
    notes = [
        wrap(f"{row['run']}: {note}", WIDTH, subsequent_indent=4 * " ") for row in rows for note in cost_notes(row)
    ]
    return "\n".join([table(header, cells, right=header[1:], width=screen_width()), *chain(*notes)])


def cost_notes(costs: Mapping[str, Any]) -> list[str]:
    """What came out otherwise than predicted, by a factor of `FAR` or more."""
    notes = []
    if step := _far(costs["step_s"], costs["predicted_step_s"]):
        notes.append(f"a step took {step:.2f} times what was predicted")
    if memory := _far(costs["memory_bytes"], costs["predicted_memory_bytes"]):
        notes.append(f"memory is {memory:.2f} times what was predicted")
    return notes


def _far(measured: float | None, predicted: float | None) -> float | None:
    """How many times the predicted value was measured; None where it is near or not known."""
    if not measured or not predicted or measured < 0:
        return None
    return None if 1 / FAR < measured / predicted < FAR else measured / predicted


def costs_text(costs: "Costs") -> str:
    """Both in one line, for status."""
    step = f"{_or_nothing(costs.step_s, format_short)} ({_or_nothing(costs.predicted_step_s, format_short)} predicted)"
    if costs.memory_bytes is None:
        return f"step {step}"
    predicted = _or_nothing(costs.predicted_memory_bytes, format_bytes)
    return f"step {step}, memory {format_bytes(costs.memory_bytes)} ({predicted} predicted)"


def _or_nothing(value: float | None, shown: Callable[[float], str]) -> str:
    return "unknown" if value is None else shown(value)


def _metric_text(key: str, value: float | None) -> str:
    """Empty where no optimum is known; 'undefined' where a metric has no value."""
    return "" if key == "optimum_ne" and value is None else format_metric(value)


def _mean_speed(steps: list[dict[str, Any]]) -> float | None:
    """Samples per second over all records: the harmonic mean, as each record stands for equally many steps."""
    speeds = [record["samples_per_s"] for record in steps if record.get("samples_per_s")]
    return len(speeds) / sum(1 / speed for speed in speeds) if speeds else None
