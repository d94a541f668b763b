"""Fetches MovieLens-100K and joins it to one Parquet file: `python -m dlrmx.data.movielens FOLDER`.

The PyPI package recbole carries it as tab-separated files with typed headers (`user_id:token`). The package is
downloaded without its dependencies and never installed.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from dlrmx.errors import InputError

PACKAGE = "recbole==1.2.1"
INSIDE = "recbole/dataset_example/ml-100k/ml-100k"
NAME = "movielens-100k.parquet"

Row = dict[str, str]


def fetch(folder: Path) -> Path:
    """The Parquet file in `folder`, made unless it is there. Raises InputError where the package cannot be had."""
    target = folder / NAME
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as aside:
        written = Path(aside) / NAME
        write(join(_download(Path(aside))), written)
        os.replace(written, target)
    return target


def _download(folder: Path) -> Path:
    """The package's wheel, in `folder`."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    result = subprocess.run(pip, capture_output=True, text=True)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        raise InputError(
            f"cannot download {PACKAGE}: {last}",
            hint=f"Without a network: on another machine, run `python -m dlrmx.data.movielens datasets`, and copy "
            f"datasets/{NAME} here. With a mirror: set PIP_INDEX_URL.",
        )
    return next(folder.glob("recbole-*.whl"))


def join(wheel: Path) -> list[dict[str, object]]:
    """One row per rating, in the order of the file, with what is known of its user and its film."""
    with zipfile.ZipFile(wheel) as package:
        users = {row["user_id"]: row for row in _rows(package, "user")}
        films = {row["item_id"]: row for row in _rows(package, "item")}
        ratings = list(_rows(package, "inter"))
    return [_joined(rating, users[rating["user_id"]], films[rating["item_id"]]) for rating in ratings]


def _rows(package: zipfile.ZipFile, table: str) -> list[Row]:
    """The rows of one of the package's files; the types are cut off the column names."""
    head, *lines = package.read(f"{INSIDE}.{table}").decode("utf-8").splitlines()
    names = [field.split(":")[0] for field in head.split("\t")]
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]


def _joined(rating: Row, user: Row, film: Row) -> dict[str, object]:
    year = film["release_year"]
    return {
        "user_id": int(rating["user_id"]),
        "item_id": int(rating["item_id"]),
        "rating": int(rating["rating"]),
        "timestamp": int(rating["timestamp"]),
        "age": int(user["age"]),
        "gender": user["gender"],
        "occupation": user["occupation"],
        "zip_code": user["zip_code"],
        "title": film["movie_title"],
        # One film's year is "V", another's "unkonwn": null.
        "release_year": int(year) if year.isdecimal() else None,
        "genres": film["class"].split(),
    }


def write(rows: list[dict[str, object]], path: Path) -> None:
    """Write the rows as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parquet.write_table(pa.Table.from_pylist(rows), path)


def main() -> int:
    """The command: its exit code."""
    if len(sys.argv) != 2:
        print("usage: python -m dlrmx.data.movielens FOLDER", file=sys.stderr)
        return 2
    try:
        print(fetch(Path(sys.argv[1])))
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
