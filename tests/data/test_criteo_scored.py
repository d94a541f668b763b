"""Files in Criteo's layout that a trained model is to score: with labels, with empty ones, with 39 columns."""

from pathlib import Path

import numpy as np
import pytest

from criteo_files import CATEGORIES, criteo, random_rows, row, write
from data_recipes import whole
from dlrmx.data.batches import Batch
from dlrmx.data.manifest import read_manifest
from dlrmx.data.prepare import prepare
from dlrmx.recipe.schema import Recipe

VOCABULARY = {name: {"ids": "vocabulary"} for name in CATEGORIES}


def recipe(path: Path, bad_rows: str = "fail") -> Recipe:
    return criteo([path], features=VOCABULARY, bad_rows=bad_rows)


def scored(tmp_path: Path, *rows: bytes, bad_rows: str = "fail") -> Path:
    """Rows prepared for a model that was trained on 300 others."""
    trained_on = prepare(recipe(write(tmp_path / "train.txt", *random_rows(300)), bad_rows), tmp_path)
    return prepare(recipe(write(tmp_path / "scored.txt", *rows), bad_rows), tmp_path, trained_on=trained_on)


def unlabelled(line: bytes) -> bytes:
    return line.partition(b"\t")[2]


def same(one: Batch, other: Batch) -> bool:
    ids = (np.array_equal(one.bags[name].ids, other.bags[name].ids) for name in CATEGORIES)
    return np.array_equal(one.dense, other.dense) and all(ids)


def test_the_rows_of_training_have_the_ids_of_training(tmp_path: Path) -> None:
    rows = random_rows(300)
    again = whole(scored(tmp_path, *rows[::-1]))
    train = whole(prepare(recipe(tmp_path / "train.txt"), tmp_path))
    assert again.labels.tolist() == train.labels.tolist()[::-1]
    for name in CATEGORIES:
        assert again.bags[name].ids.tolist() == train.bags[name].ids.tolist()[::-1]


def test_39_columns_are_rows_without_a_label(tmp_path: Path) -> None:
    rows = random_rows(50, seed=1)
    labelled, without = scored(tmp_path, *rows), scored(tmp_path, *map(unlabelled, rows))
    assert without != labelled
    assert same(whole(labelled), whole(without))
    assert np.isnan(whole(without).labels).all()
    assert read_manifest(without).splits["train"].labelled == 0


def test_an_empty_label_is_none(tmp_path: Path) -> None:
    assert whole(scored(tmp_path, row("1"), row(""), row("0"))).labels.tolist() == pytest.approx(
        [1, np.nan, 0], nan_ok=True
    )


def test_no_row_is_left_out(tmp_path: Path) -> None:
    short = row("1")[:-9]
    found = scored(tmp_path, row("1"), short, row("2"), row("0"), bad_rows="skip")
    assert whole(found).labels.tolist() == pytest.approx([1, np.nan, np.nan, 0], nan_ok=True)
    assert (read_manifest(found).rows.read, read_manifest(found).rows.bad) == (4, 2)
    found = scored(tmp_path, unlabelled(row()), unlabelled(short), bad_rows="skip")
    assert read_manifest(found).rows.first == [f"{tmp_path}/scored.txt:2: 38 fields, not 39"]


def test_a_header_without_a_label(tmp_path: Path) -> None:
    header = "\t".join([*(f"I{n}" for n in range(1, 14)), *CATEGORIES]).encode()
    assert len(whole(scored(tmp_path, header, unlabelled(row()))).labels) == 1
