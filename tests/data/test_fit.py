"""Whether a recipe fits prepared data: each thing that stops a run is found, by name and number."""

from pathlib import Path
from typing import Any

import pytest

from data_recipes import tabular
from dlrmx.data.fit import findings
from dlrmx.data.manifest import Manifest
from dlrmx.data.prepare import check_prepared, prepare
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Recipe

FEATURES: dict[str, Any] = {"item": {}, "tags": {"separator": "|"}}
NO_TEST = {"evaluate": {"at_end": None}}
TRAIN = {"batch": 2, "stop": {"epochs": 1}, **NO_TEST}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text("y,item,tags,price\n1,a,b|c,2\n0,c,,3\n1,a,b,4\n0,d,b,5\n1,b,c,6\n")
    return path


def made(file: Path, rows: int = 9, features: dict[str, Any] | None = None, **more: Any) -> Recipe:
    features = features or FEATURES
    settings: dict[str, Any] = {"dense": {"price": {}}, "train": TRAIN, **more}
    return tabular([file], features, dict.fromkeys(features, rows), **settings)


def prepared(recipe: Recipe, root: Path) -> Manifest:
    return check_prepared(prepare(recipe, root))


def told(recipe: Recipe, manifest: Manifest, kind: str = "no") -> list[str]:
    return [finding.what for finding in findings(recipe, manifest) if finding.kind == kind]


def test_it_fits(file: Path, tmp_path: Path) -> None:
    manifest = prepared(made(file), tmp_path)
    assert told(made(file), manifest) == []
    assert "5 rows to train on: 3 steps of 2 an epoch" in told(made(file), manifest, "ok")


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"rows": 8}, "item: its ids are made for a table of 9 rows, item has 8"),
        ({"dense": {}}, "dense columns: prepared are price; the recipe has none"),
        ({"features": {"item": {}}}, "features: prepared are item, tags; the recipe has item"),
        (
            {"features": dict(reversed(FEATURES.items()))},
            "features: prepared are item, tags; the recipe has tags, item",
        ),
        ({"data": {"tail": "drop"}, "train": {**TRAIN, "batch": 6}}, "6 rows are more than the 5 to train on"),
        ({"train": {**TRAIN, "evaluate": {"at_end": "test"}}}, "train.evaluate asks for test, which has no rows"),
    ],
)
def test_what_does_not_fit(changed: dict[str, Any], what: str, file: Path, tmp_path: Path) -> None:
    manifest = prepared(made(file), tmp_path)
    assert any(what in line for line in told(made(file, **changed), manifest))


def test_labels_of_one_kind(file: Path, tmp_path: Path) -> None:
    file.write_text("y,item,tags,price\n1,a,b|c,2\n1,c,,3\n")
    assert any("nothing can be learned" in line for line in told(made(file), prepared(made(file), tmp_path)))


def test_a_batch_larger_than_the_data_and_a_table_hardly_used_are_noted(file: Path, tmp_path: Path) -> None:
    recipe = made(file, rows=5000, train={**TRAIN, "batch": 6})
    notes = told(recipe, prepared(recipe, tmp_path), "note")
    assert "5 rows to train on: 1 step of 6 an epoch, less than one whole batch" in notes
    assert any(note.startswith("few rows are used of item (4 of 5,000), tags (") for note in notes)


def test_data_of_another_fingerprint_are_refused(file: Path, tmp_path: Path) -> None:
    folder = prepare(made(file), tmp_path)
    other = folder.rename(folder.with_name("0" * 12))
    with pytest.raises(InputError, match=f"{other}: holds the data of fingerprint {folder.name}"):
        check_prepared(other)
