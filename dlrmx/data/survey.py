"""A bounded sample of files: their columns' facts and the number of their rows, for a recipe to be drafted from."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dlrmx.data.column_facts import ColumnFacts, column_facts
from dlrmx.data.criteo import NAMES
from dlrmx.data.criteo_sample import is_raw_criteo, sample_raw_criteo
from dlrmx.data.faults import Tally
from dlrmx.data.fields import Column, decoded
from dlrmx.data.files import COMPRESSED, Format, format_by_name, match_files
from dlrmx.data.tables import Table
from dlrmx.errors import InputError

# So many rows of so many files, fewer of wide ones: some 100 MB.
SAMPLE_ROWS = 100_000
SAMPLE_FIELDS = 5_000_000
SAMPLE_FILES = 10
# Text shrinks to about a fifth when it is compressed; only the estimate of the number of rows depends on it.
COMPRESSION = 5
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Survey:
    """What a sample says. format: None where the files' names say it.

    rows: good rows sampled; bad_rows: others, whose fields are too few, too many, or not UTF-8; first_bad: the first of
    them; rows_in_all: exact if `whole`.
    """

    files: tuple[Path, ...]
    format: Format | None
    sampled_files: int
    rows: int
    bad_rows: int
    first_bad: str
    rows_in_all: int
    columns: tuple[ColumnFacts, ...]

    @property
    def whole(self) -> bool:
        """Whether the sample is all there is."""
        return self.rows == self.rows_in_all


@dataclass(frozen=True)
class _Sample:
    """The first rows of one file, and how many bad ones were among them. ended: the file has no more."""

    rows: pa.Table
    bad: Tally
    ended: bool


def survey(patterns: Sequence[str]) -> Survey:
    """Sample the files. Raises InputError where one cannot be read, they differ in columns, or hold no rows."""
    files = match_files(patterns)
    if all([is_raw_criteo(path) for path in files if format_by_name(path) != "parquet"] or [False]):
        return _survey_raw_criteo(files)
    tables, format_ = _tables(files)
    names = _columns(tables)
    _check_header(tables[0], names)
    step = -(-len(tables) // SAMPLE_FILES)
    chosen = tables[::step]
    quota = max(min(SAMPLE_ROWS, SAMPLE_FIELDS // len(names)) // len(chosen), 1)
    return _joined(tables, [_sample(table, names, quota) for table in chosen], format_)


def _check_header(table: Table, names: Sequence[str]) -> None:
    """Raises InputError where a text file's first line seems to be a row: it has numbers, and does not just count."""
    counted = [[str(number) for number in range(first, first + len(names))] for first in (0, 1)]
    numbers = any(NUMBER.fullmatch(name.strip()) for name in names)
    if table.format != "parquet" and numbers and list(names) not in counted:
        what = f"{table.path}:1: names its columns {', '.join(names[:6])}, which looks like a row of values"
        raise InputError(what, hint="Put a first line with the columns' names into each file.")


def _survey_raw_criteo(files: list[Path]) -> Survey:
    """As `survey`; the columns have the names that Criteo gives them."""
    chosen = files[:: -(-len(files) // SAMPLE_FILES)]
    quota = min(SAMPLE_ROWS, SAMPLE_FIELDS // len(NAMES)) // len(chosen)
    samples = [_Sample(*sample_raw_criteo(path, quota)) for path in chosen]
    return _joined([Table(path, "tsv") for path in files], samples, None)


def _joined(tables: list[Table], samples: list[_Sample], format_: Format | None) -> Survey:
    names, rows = samples[0].rows.schema.names, sum(sample.rows.num_rows for sample in samples)
    if rows == 0:
        first = [told for sample in samples for told in sample.bad.first]
        why = f"; all are bad, the first: {first[0]}" if first else ""
        raise InputError(f"{tables[0].path}: no rows in {len(samples)} of {len(tables)} file(s){why}")
    in_all = _rows_in_all(tables, samples, rows)
    together = pa.concat_tables([sample.rows for sample in samples], promote_options="permissive")
    columns = tuple(column_facts(name, together.column(name).combine_chunks(), in_all) for name in names)
    bad = [sample.bad for sample in samples]
    return Survey(
        files=tuple(table.path for table in tables),
        format=format_,
        sampled_files=len(samples),
        rows=rows,
        bad_rows=sum(tally.count for tally in bad),
        first_bad=next((first for tally in bad for first in tally.first), ""),
        rows_in_all=in_all,
        columns=columns,
    )


def _tables(files: list[Path]) -> tuple[list[Table], Format | None]:
    """The files with their formats, and what the recipe must say of it: nothing where all names say it."""
    formats = [format_by_name(path) for path in files]
    tables = [Table(path, format_ or _sniff(path)) for path, format_ in zip(files, formats, strict=True)]
    if None not in formats:
        return tables, None
    found = sorted({table.format for table in tables})
    if len(found) > 1:
        what = f"the files are of several formats ({', '.join(found)}), and their names do not tell which"
        raise InputError(what, hint="Rename them: .csv, .tsv, .parquet.")
    return tables, found[0]


def _sniff(path: Path) -> Format:
    """The format of a file whose name does not tell it, from its first bytes."""
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            begin = stream.read(1 << 16)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if begin.startswith(b"PAR1"):
        return "parquet"
    line = begin.partition(b"\n")[0]
    return "tsv" if line.count(b"\t") > line.count(b",") else "csv"


def _columns(tables: list[Table]) -> list[str]:
    """The columns that all files have, in the first one's order."""
    names: list[str] = list(tables[0].schema().names)
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InputError(f"{tables[0].path}: several columns are called {', '.join(twice)}", hint=_HEADER)
    for table in tables[1:]:
        if odd := set(names) ^ set(table.schema().names):
            what = f"its columns differ from those of {tables[0].path}: {', '.join(sorted(odd)[:10])}"
            raise InputError(f"{table.path}: {what}", hint="Name files of one kind, each with a header line.")
    return names


_HEADER = "The first line of a text file names its columns, each differently. Add one where it is missing."


def _sample(table: Table, names: list[str], quota: int) -> _Sample:
    batches, rows, bad = [], 0, Tally()
    for batch, place, faults in table.batches(names, "skip"):
        if table.format != "parquet":
            columns = [decoded(Column(name, batch.column(name), place, faults)).values for name in names]
            batch = pa.RecordBatch.from_arrays(columns, names=names)
        batches.append(batch.take(pa.array(faults.kept)))
        faults.count_in(bad)
        rows += batches[-1].num_rows
        if rows > quota:
            break
    if not batches:
        return _Sample(table.schema().empty_table(), bad, ended=True)
    return _Sample(pa.Table.from_batches(batches).slice(0, quota), bad, ended=rows <= quota)


def _rows_in_all(tables: list[Table], samples: list[_Sample], sampled: int) -> int:
    """Rows of all files: what they say themselves, else by the size of a sampled row."""
    if len(samples) == len(tables) and all(sample.ended for sample in samples):
        return sampled
    counts = [table.rows for table in tables]
    if None not in counts:
        return sum(count for count in counts if count is not None)
    fields = sampled * samples[0].rows.num_columns
    # For each field arrow keeps an offset of four bytes where a text file has one separator.
    text_bytes = sum(sample.rows.nbytes for sample in samples) - 3 * fields
    sizes = [table.path.stat().st_size * (COMPRESSION if table.path.suffix in COMPRESSED else 1) for table in tables]
    return max(sum(sizes) * sampled // max(int(text_bytes), 1), sampled)
