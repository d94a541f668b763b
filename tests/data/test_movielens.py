"""MovieLens from a wheel to one table, without a network."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from dlrmx.data import movielens
from dlrmx.errors import InputError


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "recbole-1.2.1-py3-none-any.whl"
    folder = "recbole/dataset_example/ml-100k/ml-100k"
    with zipfile.ZipFile(path, "w") as package:
        package.writestr(
            f"{folder}.inter",
            "user_id:token\titem_id:token\trating:float\ttimestamp:float\n2\t7\t3\t881250949\n1\t8\t5\t891717742\n",
        )
        package.writestr(
            f"{folder}.user",
            "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
            "1\t24\tM\ttechnician\t05201\n2\t53\tF\tother\tV3N4P\n",
        )
        package.writestr(
            f"{folder}.item",
            "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
            "7\tToy Story\t1995\tAnimation Children's\n8\tLand Before Time III\tV\tAnimation\n",
        )
    return path


def test_ratings_are_joined_with_users_and_films(wheel: Path, tmp_path: Path) -> None:
    movielens.write(movielens.join(wheel), tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("genres").to_pylist() == [["Animation", "Children's"], ["Animation"]]
    assert table.drop(["genres"]).to_pylist() == [
        {
            "user_id": 2,
            "item_id": 7,
            "rating": 3,
            "timestamp": 881250949,
            "age": 53,
            "gender": "F",
            "occupation": "other",
            "zip_code": "V3N4P",
            "title": "Toy Story",
            "release_year": 1995,
        },
        {
            "user_id": 1,
            "item_id": 8,
            "rating": 5,
            "timestamp": 891717742,
            "age": 24,
            "gender": "M",
            "occupation": "technician",
            "zip_code": "05201",
            "title": "Land Before Time III",
            "release_year": None,
        },
    ]


def test_it_is_fetched_once(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(movielens, "_download", lambda folder: wheel)
    target = movielens.fetch(tmp_path / "datasets")
    assert list((tmp_path / "datasets").iterdir()) == [target]
    assert target.name == "movielens-100k.parquet"
    monkeypatch.setattr(movielens, "_download", None)
    assert movielens.fetch(tmp_path / "datasets") == target


def test_without_a_network_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "pip", "download"]
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: no matching distribution\n")

    monkeypatch.setattr(subprocess, "run", offline)
    with pytest.raises(InputError, match="ERROR: no matching distribution\n.*on another machine"):
        movielens.fetch(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["movielens"])
    assert movielens.main() == 2
    (tmp_path / movielens.NAME).touch()
    monkeypatch.setattr(sys, "argv", ["movielens", str(tmp_path)])
    assert movielens.main() == 0
    assert capsys.readouterr().out == f"{tmp_path / movielens.NAME}\n"
