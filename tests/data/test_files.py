"""Which files a recipe names."""

import os
from pathlib import Path

import pytest

from dlrmx.data.files import find_files, format_of
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Tabular


def named(*files: str, format: str = "auto") -> Tabular:
    return Tabular.model_validate({"kind": "tabular", "files": list(files), "format": format, "label": {"column": "y"}})


def test_files_come_in_natural_order_and_once(tmp_path: Path) -> None:
    for day in (10, 2, 1):
        (tmp_path / f"day_{day}.csv").touch()
    (tmp_path / "day_3.csv").mkdir()
    found = find_files(named(f"{tmp_path}/day_2.csv", f"{tmp_path}/day_*.csv"))
    assert [path.name for path in found] == ["day_2.csv", "day_1.csv", "day_10.csv"]


def test_every_pattern_without_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(InputError) as caught:
        find_files(named(f"{tmp_path}/a.csv", f"{tmp_path}/b*.csv", f"{tmp_path}/no/c.csv"))
    text = str(caught.value)
    assert f"data.files: no file matches {tmp_path}/b*.csv" in text
    assert f"{tmp_path}/no/c.csv" in text
    assert f"{tmp_path} exists" in text


def test_what_is_there_and_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    os.mkfifo(tmp_path / "b.csv")
    (tmp_path / "c.csv").symlink_to("gone.csv")
    with pytest.raises(InputError) as caught:
        find_files(named(*(f"{tmp_path}/{name}.csv" for name in "abc")))
    text = str(caught.value)
    assert f"{tmp_path}/a.csv is a folder. A pattern names the files in it: '{tmp_path}/a.csv/*'." in text
    assert f"{tmp_path}/b.csv is a pipe or a device." in text
    assert f"{tmp_path}/c.csv is a link to gone.csv, which is not there." in text


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff.csv")).touch()
    with pytest.raises(InputError, match=r"the name of .*/a\\xff\.csv is not UTF-8"):
        find_files(named(f"{tmp_path}/*.csv"))


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.csv", "csv"), ("a.b.CSV", "csv"), ("a.tsv.gz", "tsv"), ("a.parquet", "parquet"), ("a.pq", "parquet")],
)
def test_the_name_tells_the_format(name: str, format: str) -> None:
    assert format_of(Path(name), named("x")) == format


@pytest.mark.parametrize("name", ["day_0", "a.txt", "csv", "a.gz", "csv.gz"])
def test_a_name_that_tells_nothing_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"data\.format"):
        format_of(Path(name), named("x"))
    assert format_of(Path(name), named("x", format="tsv")) == "tsv"
