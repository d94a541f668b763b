"""Scores as a Parquet file: one row per row of the scored files, in their order."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrmx.errors import DlrmxError

Floats = NDArray[np.float32]

# So many rows are written at a time.
GROUP_ROWS = 1 << 18


class Predictions:
    """Writes `score`, the probability of a positive, and `label`, null where a row has none.

    A context. The file is written aside and renamed by `publish`, so that a file of this name is whole; leaving without
    removes what there is. path None: nothing is written. Raises DlrmxError where the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._aside = None if path is None else path.with_name(f".{path.name}.{os.getpid()}")
        self._writer: Any = None
        self._logits: list[Floats] = []
        self._labels: list[Floats] = []

    def __enter__(self) -> "Predictions":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._aside is not None:
            self._aside.unlink(missing_ok=True)

    def append(self, logits: Floats, labels: Floats) -> None:
        """The next rows: logits and labels (n,), a label NaN where there is none."""
        self._logits.append(logits)
        self._labels.append(labels)
        if sum(map(len, self._logits)) >= GROUP_ROWS:
            self._flush()

    def publish(self) -> None:
        """All rows are there: the file takes its name."""
        if self._path is None or self._aside is None:
            return
        self._flush()
        try:
            self._writer.close()
            self._aside.replace(self._path)
        except OSError as error:
            raise self._cannot_write(error) from None

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        table = _table(np.concatenate([_NONE, *self._logits]), np.concatenate([_NONE, *self._labels]))
        self._logits, self._labels = [], []
        try:
            if self._writer is None:
                self._writer = parquet.ParquetWriter(self._aside, table.schema)
            self._writer.write_table(table)
        except (OSError, pa.ArrowException) as error:
            raise self._cannot_write(error) from None

    def _cannot_write(self, error: Exception) -> DlrmxError:
        what = getattr(error, "strerror", None) or str(error)
        return DlrmxError(f"cannot write {self._path}: {what}", hint="Free some space, or name another file.")


_NONE = np.zeros(0, dtype=np.float32)


def _table(logits: Floats, labels: Floats) -> Any:
    import pyarrow as pa

    # In 64 bits, and without overflow for any logit.
    scores = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
    none = np.isnan(labels)
    label = pa.array(np.where(none, 0, labels).astype(np.int8), mask=none)
    return pa.table({"score": pa.array(scores.astype(np.float32)), "label": label})
