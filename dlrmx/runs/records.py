"""What was measured: steps and evaluations, one JSON line each, over all attempts of a run.

kind="step"        step, epoch, row, loss, ne, auc, lr_dense, lr_sparse, samples_per_s, step_ms, rss_bytes, and
                   bytes by kind that a rank sends to others in a step, in the mean over ranks
kind="evaluation"  step, split, rows, loss, ne, auc, accuracy, calibration, label_mean, auc_error, optimum_ne,
                   final
kind="file_evaluation"  step, file, rows, loss, ...: the same metrics, of one of the files that were evaluated
"""

import time
from typing import Any

from dlrmx.runs.events import first_step, read_events
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.lines import Line, append_line, read_lines


def append_record(attempt: AttemptPaths, **fields: Any) -> bool:
    """Write {time, **fields}; False where it could not be written (disk full)."""
    return append_line(attempt.records, {"time": time.time(), **fields})


def read_records(run: RunPaths) -> list[Line]:
    """The run's records, oldest first, each with its `attempt`.

    An attempt that began from step S repeats what came after S: earlier records above S are void.
    """
    kept: list[Line] = []
    for attempt in run.attempts():
        began = first_step(read_events(attempt, "begin"))
        if began is not None:
            kept = [record for record in kept if record["step"] <= began]
        records = (line for line in read_lines(attempt.records) if is_record(line))
        kept.extend({**record, "attempt": attempt.number} for record in records)
    return kept


def is_record(line: Line) -> bool:
    """Whether a line is one of `append_record`'s: what is there has its type. Who edits by hand may err."""
    there = isinstance(line.get("kind"), str) and all(
        name in line for name in ("time", "step", *_NEEDED.get(line["kind"], ()))
    )
    return there and all(_sound(name, value) for name, value in line.items())


def foreign_lines(run: RunPaths) -> list[str]:
    """A word on each file of records with lines that are none, as after an edit by hand."""
    words = []
    for attempt in run.attempts():
        number = sum(not is_record(line) for line in read_lines(attempt.records))
        if number:
            words.append(
                f"{attempt.records}: {number} {'line is no record' if number == 1 else 'lines are no records'}"
            )
    return words


_NEEDED = {"evaluation": ("split", "rows"), "file_evaluation": ("file", "rows")}
_TEXTS = ("kind", "split", "file")
_WHOLE = ("step", "rows", "epoch", "row", "rss_bytes")
_COUNTS = ("bytes", "bytes_out", "clamped")


def _sound(name: str, value: Any) -> bool:
    """Whether a field has its type; all that is none of these is a number, or null where it is undefined."""
    if name in _TEXTS:
        return isinstance(value, str)
    if name == "final" or name in _WHOLE:
        return isinstance(value, bool if name == "final" else int)
    if name in _COUNTS:
        return isinstance(value, dict) and all(isinstance(size, int) for size in value.values())
    if name == "time":
        return isinstance(value, int | float)
    return name not in _NUMBERS or value is None or isinstance(value, int | float)


_NUMBERS = (
    *("loss", "ne", "auc", "lr_dense", "lr_sparse", "samples_per_s", "step_ms"),
    *("accuracy", "calibration", "label_mean", "auc_error", "optimum_ne"),
)
