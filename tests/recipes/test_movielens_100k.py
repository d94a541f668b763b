"""The join of MovieLens-100K, on a package of three films that pip is not asked for."""

from pathlib import Path
from zipfile import ZipFile

import pytest
from pyarrow import parquet

from dlrmx_recipes import movielens_100k

INTER = """user_id:token|item_id:token|rating:float|timestamp:float
7|2|3|881250949
8|1|5|891717742
7|3|4|878887116
"""
ITEM = """item_id:token|movie_title:token_seq|release_year:token|class:token_seq
1|Toy Story|1995|Animation Children's Comedy
2|Land Before Time III|V|Animation
3|unkonwn|unkonwn|unknown
"""
USER = """user_id:token|age:token|gender:token|occupation:token|zip_code:token
7|24|M|technician|05201
8|53|F|other|T8H1N
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "recbole-1.2.1-py3-none-any.whl"
    with ZipFile(path, "w") as files:
        for table, text in (("inter", INTER), ("item", ITEM), ("user", USER)):
            files.writestr(f"recbole/dataset_example/ml-100k/ml-100k.{table}", text.replace("|", "\t"))
    return path


def test_one_row_per_rating(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(movielens_100k, "download", lambda folder: wheel)
    rows = parquet.read_table(movielens_100k.fetch(tmp_path / "datasets")).to_pylist()
    assert [(row["user_id"], row["item_id"], row["rating"]) for row in rows] == [
        ("7", "2", 3),
        ("8", "1", 5),
        ("7", "3", 4),
    ]
    assert [row["release_year"] for row in rows] == [None, 1995, None]
    assert [row["genres"] for row in rows] == [["Animation"], ["Animation", "Children's", "Comedy"], ["unknown"]]
    assert [(row["age"], row["zip_code"]) for row in rows] == [(24, "05201"), (53, "T8H1N"), (24, "05201")]
    assert list((tmp_path / "datasets").iterdir()) == [tmp_path / "datasets" / movielens_100k.NAME]


def test_what_is_there_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / movielens_100k.NAME).write_text("kept")
    monkeypatch.delattr(movielens_100k, "download")
    assert movielens_100k.fetch(tmp_path).read_text() == "kept"
