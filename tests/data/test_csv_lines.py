"""The lines of CSV files: what is not UTF-8 in them."""

from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from data_recipes import tabular
from dlrmx.data.csv_lines import CountedLines
from dlrmx.data.manifest import read_manifest
from dlrmx.data.prepare import prepare
from dlrmx.data.tables import Table
from dlrmx.errors import InputError


def test_uneven_rows_that_are_not_utf_8_are_bad_rows_like_others(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"y,item\n1,a\n\xf6\n0,b\n1,\xf6,x\n0,\xf6\n")
    given = tabular([tmp_path / "a.csv"], {"item": {}}, {"item": 9}, data={"bad_rows": "skip"})
    rows = read_manifest(prepare(given, tmp_path)).rows
    assert (rows.read, rows.bad) == (5, 3)
    assert [told.partition("a.csv:")[2] for told in rows.first] == [
        "3: 1 fields, not 2",
        "5: 3 fields, not 2",
        "6: item: b'\\xf6' is not UTF-8",
    ]


def test_a_compressed_file_without_the_suffix_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\x1f\x8b\x08\xff,\xf6\n\xf6\n")
    with pytest.raises(InputError, match="not UTF-8 text"):
        Table(tmp_path / "a.csv", "csv").schema()


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=12)), st.integers(1, 9))
def test_what_is_read_is_the_file_but_for_what_is_not_utf_8(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], size: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.csv"
    path.write_bytes(b"\n".join(lines))
    with CountedLines(path, ",") as opened:
        read = b"".join(iter(lambda: opened.read(size), b""))
    assert read.decode(errors="replace") == path.read_bytes().decode(errors="replace")


OPEN = {b'"open', b'"\xf6'}
FIELDS = [b"a", b'"a,b"', b"\xf6", b'"\xf6,"', b"\xc3\xb6", b'5"', b'"open', b'"\xf6']


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3).filter(
            lambda line: sum(field in OPEN for field in line) < 2
        )
    )
)
def test_no_row_is_lost_whatever_its_quotes_and_bytes(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[bytes]]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    path.write_bytes(
        b"y,c\n" + b"".join(b",".join(sorted(line, key=lambda field: field in OPEN)) + b"\n" for line in lines)
    )
    table = Table(path, "csv")
    # The last line has no row behind it to swallow, but is refused where it is not UTF-8.
    if any(OPEN & {*line} for line in lines[:-1]) or any(
        b"\xf6" in b"".join(line) and OPEN & {*line} for line in lines
    ):
        with pytest.raises(InputError, match="a quoted field runs over the end of its line"):
            list(table.batches(["y", "c"], "skip"))
        return
    batches = list(table.batches(["y", "c"], "skip"))
    rows = [row for batch, _, faults in batches for row in batch.take(pa.array(faults.kept)).to_pylist()]
    assert sum(batch.num_rows for batch, _, _ in batches) == len(lines)
    # Good rows come with the bytes that they have in the file.
    assert all("\ufffd".encode() not in value for row in rows for value in row.values())
