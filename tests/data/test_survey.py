"""A bounded sample of files."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from criteo_files import random_rows, row, write
from dlrmx.data import survey as module
from dlrmx.data.survey import survey
from dlrmx.errors import InputError


def text(rows: range, separator: str = ",") -> str:
    lines = [separator.join(["y", "user"]), *(separator.join([str(row % 2), f"u{row}"]) for row in rows)]
    return "\n".join(lines) + "\n"


def test_a_small_file_is_sampled_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text(range(50)))
    found = survey([f"{tmp_path}/*.csv"])
    assert (found.rows, found.rows_in_all, found.whole, found.format) == (50, 50, True, None)
    assert [column.name for column in found.columns] == ["y", "user"]
    assert found.columns[1].distinct == 50


@pytest.mark.parametrize("head", ["1,38.89", "0,red", "3,4", "-1e3,x"])
def test_a_first_line_of_values_is_no_header(tmp_path: Path, head: str) -> None:
    """Its row would be lost without a word."""
    (tmp_path / "a.csv").write_text(f"{head}\n0,12\n1,13\n")
    with pytest.raises(InputError, match=r"a\.csv:1: names its columns .*, which looks like a row of values"):
        survey([f"{tmp_path}/a.csv"])


def test_counted_columns_have_names(tmp_path: Path) -> None:
    for first in (0, 1):
        (tmp_path / "a.csv").write_text(f"{first},{first + 1},{first + 2}\n0,12,3\n1,13,4\n")
        assert len(survey([f"{tmp_path}/a.csv"]).columns) == 3


def test_where_all_rows_are_bad_the_first_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"y,user\n1,gr\xf6\xdfe\n")
    with pytest.raises(
        InputError, match=r"no rows in 1 of 1 file.*; all are bad, the first: .*a\.csv:2: user: .*UTF-8"
    ):
        survey([f"{tmp_path}/a.csv"])


def test_of_large_files_the_first_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_ROWS", 100)
    for number in range(3):
        (tmp_path / f"a{number}.csv").write_text(text(range(1000, 2000)))
    found = survey([f"{tmp_path}/*.csv"])
    assert (found.rows, found.sampled_files, found.whole) == (99, 3, False)
    assert found.rows_in_all == pytest.approx(3000, rel=0.05)
    assert found.columns[1].distinct == 33


def test_of_many_files_some_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_FILES", 2)
    for number in range(5):
        (tmp_path / f"a{number}.csv").write_text(text(range(number, number + 10)))
    found = survey([f"{tmp_path}/*.csv"])
    assert (len(found.files), found.sampled_files, found.rows) == (5, 2, 20)
    assert found.rows_in_all == pytest.approx(50, rel=0.2)  # a header in each


def test_parquet_says_how_many_rows_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_ROWS", 10)
    parquet.write_table(pa.table({"y": [0, 1] * 500}), tmp_path / "a.parquet")
    found = survey([f"{tmp_path}/a.parquet"])
    assert (found.rows, found.rows_in_all) == (10, 1000)


def test_the_format_is_told_where_names_do_not(tmp_path: Path) -> None:
    (tmp_path / "day_0").write_text(text(range(9), "\t"))
    assert survey([f"{tmp_path}/day_0"]).format == "tsv"
    (tmp_path / "clicks.gz").write_bytes(gzip.compress(text(range(9)).encode()))
    assert survey([f"{tmp_path}/clicks.gz"]).format == "csv"
    parquet.write_table(pa.table({"y": [0, 1]}), tmp_path / "part-0")
    assert survey([f"{tmp_path}/part-0"]).format == "parquet"
    with pytest.raises(InputError, match="several formats"):
        survey([f"{tmp_path}/day_0", f"{tmp_path}/part-0"])


def test_what_cannot_be_sampled_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,user\n1,a\n")
    (tmp_path / "b.csv").write_text("y,item\n1,a\n")
    with pytest.raises(InputError, match="b.csv: its columns differ from those of .*a.csv: item, user"):
        survey([f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"])
    (tmp_path / "a.csv").write_text("y,user\n")
    with pytest.raises(InputError, match="no rows in 1 of 1"):
        survey([f"{tmp_path}/a.csv"])
    (tmp_path / "a.csv").write_text("0,,1,\n1,,0,\n")
    with pytest.raises(InputError, match="several columns are called .*\n.*first line"):
        survey([f"{tmp_path}/a.csv"])
    with pytest.raises(InputError, match="no file matches"):
        survey([f"{tmp_path}/none*.csv"])


def test_bad_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = ["y,user", "1,a", "0", "0,b", "1,c,d", "0,\xff", "1,e"]
    (tmp_path / "a.csv").write_bytes("\n".join(lines).encode("latin-1") + b"\n")
    found = survey([f"{tmp_path}/a.csv"])
    assert (found.rows, found.bad_rows, found.columns[1].distinct) == (3, 3, 3)
    assert found.first_bad == f"{tmp_path}/a.csv:3: 1 fields, not 2"


@pytest.mark.parametrize("name", ["day_0", "train.txt", "day_0.gz"])
def test_criteos_files_have_no_header(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / name, *random_rows(50), row()[:-9], end=b"\r\n")
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    found = survey([str(path)])
    assert [column.name for column in found.columns][:2] == ["label", "I1"]
    assert (found.rows, found.whole, found.bad_rows) == (50, True, 1)
    assert found.first_bad == f"{path}:51: 39 fields, not 40"
    last = {line.split(b"\t")[-1] for line in random_rows(50)} - {b""}
    assert found.columns[-1].distinct == len(last)
    monkeypatch.setattr(module, "SAMPLE_ROWS", 20)
    assert survey([str(path)]).rows == 20


def test_criteos_unlabelled_file_is_no_file_to_train_on(tmp_path: Path) -> None:
    write(tmp_path / "test.txt", *(line.partition(b"\t")[2] for line in random_rows(5)))
    with pytest.raises(InputError, match="39 columns without names"):
        survey([f"{tmp_path}/test.txt"])
