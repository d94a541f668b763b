"""Fetches the data of movielens_100k.yaml: 100,000 ratings, with what is known of users and films, as one Parquet file.

    python -m dlrmx_recipes.movielens_100k datasets

The PyPI package recbole carries MovieLens-100K as tab-separated files with typed headers (`user_id:token`); it is
downloaded without its dependencies and never installed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

PACKAGE = "recbole==1.2.1"
FOLDER = "recbole/dataset_example/ml-100k/ml-100k"
NAME = "movielens_100k.parquet"

Row = dict[str, str]


def fetch(folder: Path) -> Path:
    """Write NAME into `folder`, unless it is there."""
    target = folder / NAME
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        wheel = download(Path(aside))
        write(joined(read(wheel, "inter"), read(wheel, "item"), read(wheel, "user")), Path(aside) / NAME)
        os.replace(Path(aside) / NAME, target)
    return target


def download(folder: Path) -> Path:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
    ]
    subprocess.run([*pip, PACKAGE], check=True)
    return next(folder.glob("recbole-*.whl"))


def read(wheel: Path, table: str) -> list[Row]:
    """The rows of one of its files; the types are cut off the column names."""
    with ZipFile(wheel) as files:
        lines = files.read(f"{FOLDER}.{table}").decode().splitlines()
    names = [field.split(":")[0] for field in lines[0].split("\t")]
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]


def joined(ratings: list[Row], films: list[Row], users: list[Row]) -> list[dict[str, object]]:
    """One row per rating, in the order of the file. Ids stay text; a release year that is none ("V") is null."""
    film = {row["item_id"]: row for row in films}
    user = {row["user_id"]: row for row in users}
    return [_rating(row, film[row["item_id"]], user[row["user_id"]]) for row in ratings]


def _rating(rating: Row, film: Row, user: Row) -> dict[str, object]:
    year = film["release_year"]
    return {
        "user_id": rating["user_id"],
        "item_id": rating["item_id"],
        "rating": float(rating["rating"]),
        "timestamp": int(rating["timestamp"]),
        "age": int(user["age"]),
        "gender": user["gender"],
        "occupation": user["occupation"],
        "zip_code": user["zip_code"],
        "release_year": int(year) if year.isdecimal() else None,
        "genres": film["class"].split(),
    }


def write(rows: list[dict[str, object]], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(rows), path)


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1])))
