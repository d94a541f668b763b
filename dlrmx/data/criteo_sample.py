"""A sample of files in Criteo's layout as they are downloaded: without a header that names the columns."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv

from dlrmx.data.criteo import NAMES
from dlrmx.data.faults import Tally
from dlrmx.errors import InputError

READ_BYTES = 8 << 20


def is_raw_criteo(path: Path) -> bool:
    """Whether a file's first line has Criteo's 40 fields and no names. Raises InputError for 39: they have no label."""
    delimiter, fields = _first_line(path)
    if len(fields) == len(NAMES) - 1 and fields[0].strip() != b"I1" and delimiter == b"\t":
        hint = "Criteo's test file is such: a model can score it, not learn from it."
        raise InputError(f"{path}: 39 columns without names, none of them a label", hint=hint)
    return len(fields) == len(NAMES) and fields[0] in (b"0", b"1")


def sample_raw_criteo(path: Path, quota: int) -> tuple[pa.Table, Tally, bool]:
    """The first rows, how many were bad among them, and whether there are no more."""
    delimiter, _ = _first_line(path)
    bad = Tally()

    def leave_out(row: Any) -> str:
        bad.add(1, [f"{path}:{row.number}: {row.actual_columns} fields, not {len(NAMES)}"])
        return "skip"

    batches, rows = [], 0
    try:
        with csv.open_csv(
            path,
            read_options=csv.ReadOptions(column_names=NAMES, block_size=READ_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(
                delimiter=delimiter.decode(), quote_char=False, invalid_row_handler=leave_out
            ),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(NAMES, pa.string()), null_values=[]),
        ) as reader:
            for batch in reader:
                batches.append(batch)
                rows += batch.num_rows
                if rows > quota:
                    break
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())[:400]}") from None
    return pa.Table.from_batches(batches).slice(0, quota), bad, rows <= quota


def _first_line(path: Path) -> tuple[bytes, list[bytes]]:
    """The delimiter, and the fields of the first line."""
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            line: bytes = stream.read(1 << 16).partition(b"\n")[0]
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    delimiter = b"\t" if b"\t" in line else b","
    return delimiter, line.rstrip(b"\r").split(delimiter)
