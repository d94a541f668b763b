"""What was measured: steps and evaluations, one JSON line each, over all attempts of a run.

kind="step"        step, epoch, row, loss, ne, auc, lr_dense, lr_sparse, samples_per_s, step_ms, bytes, rss_bytes
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
    """Whether a line is one of `append_record`'s."""
    types = (("time", int | float), ("step", int), ("kind", str))
    return all(isinstance(line.get(name), kind) for name, kind in types)
