"""Rows by name: what the busiest rows of prepared data stand for, held to the values that were written."""

from collections import Counter
from pathlib import Path
from typing import Any

from criteo_files import criteo, row, write
from data_recipes import recipe, tabular
from dlrmx.data.manifest import read_manifest
from dlrmx.data.prepare import prepare
from dlrmx.data.row_names import row_names
from dlrmx.recipe.schema import Recipe

COLOURS = ["red"] * 5 + ["green"] * 3 + [""] * 2 + ["blue"]
NUMBERS = [7] * 6 + [3] * 4 + [0]


def top(recipe: Recipe, root: Path, feature: str) -> list[tuple[str, int]]:
    folder = prepare(recipe, root)
    facts = read_manifest(folder).features[feature]
    names = row_names(folder, recipe, feature, [row for row, _ in facts.top])
    return [(name, count) for name, (_, count) in zip(names, facts.top, strict=True)]


def test_values_of_tables(tmp_path: Path) -> None:
    lines = [f"{n % 2},{colour},{number}" for n, (colour, number) in enumerate(zip(COLOURS, NUMBERS, strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(["y,colour,n", *lines]) + "\n")
    features: dict[str, Any] = {
        "colour": {"ids": "vocabulary", "min_count": 2},
        "hashed": {"column": "colour"},
        "n": {"ids": "identity"},
        "rest": {"column": "n", "ids": "modulo"},
    }
    made = tabular([tmp_path / "a.csv"], features, {"colour": 9, "hashed": 99, "n": 10, "rest": 5})
    assert top(made, tmp_path, "colour") == [("red", 5), ("green", 3), ("(missing)", 2), ("(unseen)", 1)]
    assert Counter(name for name, _ in top(made, tmp_path, "hashed")) == {"": 3, "(missing)": 1}
    assert top(made, tmp_path, "n") == [("7", 6), ("3", 4), ("0", 1)]
    assert top(made, tmp_path, "rest") == [("3 modulo 4", 10), ("0 modulo 4", 1)]


def test_keys_of_criteo(tmp_path: Path) -> None:
    rows = [row("1", C1="0000beef")] * 3 + [row("0", C1="000000ff")] * 2 + [row("0", C1="")]
    features = {"v": {"column": "C1", "ids": "vocabulary"}, "n": {"column": "C1", "ids": "modulo"}}
    made = criteo([write(tmp_path / "day_0", *rows)], features=features, rows=70_000)
    assert top(made, tmp_path, "v") == [("0000beef", 3), ("000000ff", 2), ("(missing)", 1)]
    assert top(made, tmp_path, "n")[0] == ("0000beef modulo 69,999", 3)


def test_drawn_ids_stand_for_nothing(tmp_path: Path) -> None:
    made = recipe({"kind": "synthetic", "rows": 50}, {"item": {}}, {"item": 9})
    assert {name for name, _ in top(made, tmp_path, "item")} == {""}
