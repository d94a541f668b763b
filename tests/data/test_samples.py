"""The two small real samples, from files to batches. They lie outside the project: skipped where they are absent."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from data_recipes import tabular, whole
from dlrmx.data.manifest import read_manifest
from dlrmx.data.prepare import prepare


def rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def test_criteo(shared_dir: Path, tmp_path: Path) -> None:
    path = shared_dir / "data" / "criteo_sample.csv"
    names = [f"C{number}" for number in range(1, 27)]
    dense = {f"I{number}": {"transform": "log1p"} for number in range(1, 14)}
    data = {"label": {"column": "label"}}
    recipe = tabular([path], {name: {} for name in names}, dict.fromkeys(names, 1000), dense=dense, data=data)
    folder = prepare(recipe, tmp_path)
    truth, batch = list(rows(path)), whole(folder)
    assert batch.labels.tolist() == [float(row["label"]) for row in truth]
    numbers = np.array([[float(row[name] or 0) for name in dense] for row in truth])
    assert batch.dense == pytest.approx(np.log1p(np.maximum(numbers, 0)), rel=1e-6)
    for name in names:
        assert read_manifest(folder).features[name].missing == sum(row[name] == "" for row in truth)


def test_movielens(shared_dir: Path, tmp_path: Path) -> None:
    path = shared_dir / "data" / "movielens_sample.csv"
    features = {"user_id": {}, "movie_id": {}, "genres": {"separator": "|", "ids": "vocabulary"}}
    data = {"label": {"column": "rating", "threshold": 4}}
    folder = prepare(tabular([path], features, dict.fromkeys(features, 1000), data=data), tmp_path)
    truth, batch = list(rows(path)), whole(folder)
    assert batch.labels.tolist() == [float(int(row["rating"]) >= 4) for row in truth]
    genres = [row["genres"].split("|") for row in truth]
    assert batch.bags["genres"].lengths.tolist() == [len(names) for names in genres]
    assert read_manifest(folder).features["genres"].distinct == len({name for names in genres for name in names})
