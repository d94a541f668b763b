"""The evaluations of runs side by side."""

from typing import TYPE_CHECKING, Any

from dlrmx.units import format_count, format_metric

from .output import table

if TYPE_CHECKING:
    from dlrmx.runs.layout import RunPaths

COLUMNS = ("run", "split", "step", "rows", "loss", "NE", "optimum NE", "AUC", "accuracy", "calibration", "samples/s")
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
    """One line per run and split."""
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
    return table(COLUMNS, cells, right=COLUMNS[2:])


def _metric_text(key: str, value: float | None) -> str:
    """Empty where no optimum is known; 'undefined' where a metric has no value."""
    return "" if key == "optimum_ne" and value is None else format_metric(value)


def _mean_speed(steps: list[dict[str, Any]]) -> float | None:
    """Samples per second over all records: the harmonic mean, as each record stands for equally many steps."""
    speeds = [record["samples_per_s"] for record in steps if record.get("samples_per_s")]
    return len(speeds) / sum(1 / speed for speed in speeds) if speeds else None
