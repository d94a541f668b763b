"""Reading CSV, TSV and Parquet files as streams of record batches, every error by file and row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from dlrmx.data.files import Format
from dlrmx.errors import InputError, Problem

# One read of a CSV file: some 40,000 rows of 40 columns. A row must fit into it.
CSV_READ_BYTES = 8 << 20
PARQUET_READ_ROWS = 65_536


@dataclass(frozen=True)
class Place:
    """Where a batch comes from: its file, and how many rows of the file lie before it."""

    file: Path
    first: int
    header: bool

    def at(self, row: int) -> str:
        """Name a row of the batch: file:line where a file has lines (the header is line 1)."""
        number = self.first + row + 1
        return f"{self.file}:{number + 1}" if self.header else f"{self.file}: row {number}"


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
            with self._open_csv(csv.ConvertOptions()) as reader:
                return pa.schema([(name, pa.string()) for name in reader.schema.names])
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, error) from None

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Place]]:
        """The named columns, batch by batch; those of a CSV file as strings."""
        done = 0
        reader = self._read(columns)
        while True:
            try:
                batch = next(reader)
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(self.path, error) from None
            yield batch, Place(self.path, done, header=self.format != "parquet")
            done += batch.num_rows

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.format == "parquet":
            with parquet.ParquetFile(self.path) as file:
                yield from file.iter_batches(batch_size=PARQUET_READ_ROWS, columns=list(columns))
            return
        options = csv.ConvertOptions(
            include_columns=list(columns),
            column_types={name: pa.string() for name in columns},
            # Which texts mean a missing value is decided where fields are parsed, for all formats alike.
            null_values=[],
        )
        with self._open_csv(options) as reader:
            yield from reader

    def _open_csv(self, convert: csv.ConvertOptions) -> Any:
        # Without threads, arrow's errors name the row.
        read = csv.ReadOptions(block_size=CSV_READ_BYTES, use_threads=False)
        parse = csv.ParseOptions(delimiter="\t" if self.format == "tsv" else ",")
        return csv.open_csv(self.path, read_options=read, parse_options=parse, convert_options=convert)


def missing_columns(table: Table, schema: pa.Schema, wanted: dict[str, str]) -> list[Problem]:
    """A problem for each wanted column (column -> recipe key) that the file lacks, or has twice."""
    problems = []
    for column, key in wanted.items():
        count = schema.names.count(column)
        if count == 0:
            near = get_close_matches(column, schema.names, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Its columns: {', '.join(schema.names[:40])}."
            problems.append(Problem(f"no column {column}", where=str(table.path), key=key, hint=hint))
        elif count > 1:
            problems.append(Problem(f"{count} columns are called {column}", where=str(table.path), key=key))
    return problems


def _unreadable(path: Path, error: Exception) -> InputError:
    """Arrow's own words, in one line: they name the row."""
    text = " ".join(str(error).split())
    if "Empty CSV file" in text:
        return InputError(f"{path}: the file is empty", hint="It needs a header line and rows.")
    return InputError(f"{path}: {text[:400]}")
