"""Reading CSV, TSV and Parquet files as streams of record batches, every error by file and row."""

import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from dlrmx.data.csv_lines import CountedLines, open_quote, refuse_open_quote
from dlrmx.data.faults import Faults, Policy
from dlrmx.data.files import Format
from dlrmx.data.source import Unreadable
from dlrmx.errors import InputError, Problem

# One read of a CSV file: some 40,000 rows of 40 columns. A row must fit into it.
CSV_READ_BYTES = 8 << 20
PARQUET_READ_ROWS = 65_536


@dataclass(frozen=True)
class Place:
    """Where a batch comes from: its file, how many rows of the file lie before it, and the line of each of its rows.

    `lines`: None where a file has no lines. `delimiter`: of its fields, where nothing but the first bad row is told.
    """

    file: Path
    first: int
    lines: NDArray[np.int64] | None
    delimiter: str | None = None

    @property
    def text(self) -> bool:
        """Whether the columns are bytes, of a text file."""
        return self.lines is not None

    def at(self, row: int) -> str:
        """Name a row of the batch: file:line where a file has lines. Raises InputError where that is not sure."""
        if self.lines is None:
            return f"{self.file}: row {self.first + row + 1}"
        number = int(self.lines[row])
        if self.delimiter is not None:
            refuse_open_quote(self.file, self.delimiter, number)
        return f"{self.file}:{number}"


@dataclass(frozen=True)
class Table:
    """One file."""

    path: Path
    format: Format

    @property
    def rows(self) -> int | None:
        """The number of rows, where the file says so."""
        if self.format != "parquet":
            return None
        try:
            return int(parquet.read_metadata(self.path).num_rows)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, error) from None

    def schema(self) -> pa.Schema:
        """Names and types of the columns. Raises InputError where the file cannot be read or is empty."""
        try:
            if self.format == "parquet":
                return parquet.read_schema(self.path)
            with self._open_csv(csv.ConvertOptions(), _BrokenRows()) as (reader, _):
                return pa.schema([(name, pa.string()) for name in reader.schema.names])
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _unreadable(self.path, error) from None

    def batches(self, columns: Sequence[str], policy: Policy) -> Iterator[tuple[pa.RecordBatch, Place, Faults]]:
        """The named columns, batch by batch; those of a CSV file as bytes.

        A row with too few or too many fields is there, without values, and bad. Raises InputError at the first one
        where the policy is to fail.
        """
        done, broken, delimiter = 0, _BrokenRows(), self._delimiter if policy == "fail" else None
        reader = self._read(columns, broken)
        ended = False
        while not ended:
            try:
                batch = next(reader, None)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _unreadable(self.path, error) from None
            ended = batch is None
            if batch is None:
                batch = pa.RecordBatch.from_pylist([], pa.schema([(name, pa.binary()) for name in columns]))
            gaps = broken.take(done, batch.num_rows, rest=ended)
            lines = broken.lines.take(batch.num_rows + len(gaps)) if broken.lines else None
            place = Place(self.path, done, lines, delimiter)
            faults = Faults(batch.num_rows + len(gaps), policy)
            if gaps:
                batch = _with_gaps(batch, [row for row, _ in gaps])
                rows, why = np.array([row for row, _ in gaps]), [why for _, why in gaps]
                faults.flag(rows, place.at, "", why.__getitem__, "")
            if batch.num_rows or not ended:
                yield batch, place, faults
            done += batch.num_rows

    def _read(self, columns: Sequence[str], broken: "_BrokenRows") -> Iterator[pa.RecordBatch]:
        if self.format == "parquet":
            with parquet.ParquetFile(self.path) as file:
                yield from file.iter_batches(batch_size=PARQUET_READ_ROWS, columns=list(columns))
            return
        options = csv.ConvertOptions(
            include_columns=list(columns),
            # Bytes: what is not UTF-8 is told by its row, like any other bad field.
            column_types={name: pa.binary() for name in columns},
            # Which texts mean a missing value is decided where fields are parsed, for all formats alike.
            null_values=[],
        )
        rows = 0
        with self._open_csv(options, broken) as (reader, lines):
            lines.take(1)  # the header
            broken.lines = lines
            for batch in reader:
                rows += batch.num_rows
                yield batch
        if lines.swallowed or lines.count != 1 + rows + broken.count:
            raise open_quote(self.path, self._delimiter)

    @property
    def _delimiter(self) -> str:
        return "\t" if self.format == "tsv" else ","

    @contextmanager
    def _open_csv(
        self, convert: csv.ConvertOptions, broken: "_BrokenRows | None" = None
    ) -> Iterator[tuple[Any, CountedLines]]:
        # Without threads, arrow's errors name the row.
        read = csv.ReadOptions(block_size=CSV_READ_BYTES, use_threads=False)
        parse = csv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=broken)
        with (
            CountedLines(self.path, self._delimiter) as lines,
            csv.open_csv(lines, read_options=read, parse_options=parse, convert_options=convert) as reader,
        ):
            yield reader, lines


class _BrokenRows:
    """Arrow's handler of rows with too few or too many fields: it leaves them out, and we put them back as gaps.

    `lines`: those of the file, once it is open.
    """

    def __init__(self) -> None:
        self.lines: CountedLines | None = None
        self._found: deque[tuple[int, str]] = deque()
        self.count = 0

    def __call__(self, row: Any) -> str:
        self.count += 1
        # Arrow counts the header, from 1; not the empty lines.
        self._found.append((row.number - 2, f"{row.actual_columns} fields, not {row.expected_columns}"))
        return "skip"

    def take(self, done: int, good: int, *, rest: bool) -> list[tuple[int, str]]:
        """(row, what is wrong) of those between `good` good rows that come after `done` rows; rows from `done` on.

        Those behind the last good row come with the next batch, and after the last batch with `rest`.
        """
        taken: list[tuple[int, str]] = []
        while self._found and (rest or self._found[0][0] - done < good + len(taken)):
            row, why = self._found.popleft()
            taken.append((row - done, why))
        return taken


def _with_gaps(batch: pa.RecordBatch, gaps: list[int]) -> pa.RecordBatch:
    """The batch with rows of nulls, so that they stand at the positions `gaps`."""
    absent = np.zeros(batch.num_rows + len(gaps), dtype=np.bool_)
    absent[gaps] = True
    # Past the last good row the sum says one too many: masked, it is not read.
    return batch.take(pa.array(np.cumsum(~absent) - 1, mask=absent))


def missing_columns(table: Table, schema: pa.Schema, wanted: dict[str, str]) -> list[Problem]:
    """A problem for each wanted column (column -> recipe key) that the file lacks, or has twice."""
    problems, names = [], schema.names
    counts = Counter(names)
    for column, key in wanted.items():
        count = counts[column]
        if count == 0:
            near = get_close_matches(column, names, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Its columns: {', '.join(names[:40])}."
            problems.append(Problem(f"no column {column}", where=str(table.path), key=key, hint=hint))
        elif count > 1:
            problems.append(Problem(f"{count} columns are called {column}", where=str(table.path), key=key))
    return problems


def _unreadable(path: Path, error: Exception) -> InputError:
    """Arrow's own words, in one line: they name the row."""
    text = " ".join(str(error).split())
    if "Empty CSV file" in text:
        return InputError(f"{path}: the file is empty", hint="It needs a header line and rows.")
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text:
        return InputError(
            f"{path}: not UTF-8 text: {text[:400]}", hint="Convert it: iconv -t UTF-8, with -f its encoding."
        )
    if isinstance(error, OSError) and error.errno is not None:
        return Unreadable(f"{path}: cannot be read: {os.strerror(error.errno)}")
    return InputError(f"{path}: {text[:400]}")
