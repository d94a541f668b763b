"""data prepare and show."""

import json
from pathlib import Path

import yaml

from scripted import Dlrmx


def test_prepared_data_show_as_a_table(dlrmx: Dlrmx, recipe_file: Path) -> None:
    prepared = dlrmx("data", "prepare", recipe_file)
    assert prepared.exit_code == 0, prepared.output
    shown = json.loads(dlrmx("data", "show", recipe_file, "--json").stdout)
    assert shown["path"] == prepared.stdout.strip()
    assert sum(split["rows"] for split in shown["splits"].values()) == 2000
    assert set(shown["features"]) == {"item", "tags"}
    text = dlrmx("data", "show", recipe_file).stdout
    for words in ("split", "optimum NE", "train", "validation", "test", "feature", "mean ids", "item", "tags"):
        assert words in text, words
    item = shown["features"]["item"]
    assert f"  {item['distinct']} of 1,000  " in text


FULL = {
    "data": {"kind": "tabular", "files": ["a.csv"], "label": {"column": "y"}},
    "features": {"item": {"ids": "vocabulary"}},
    "tables": {"item": {"rows": 7, "dim": 4}},
    "model": {"kind": "dlrm", "bottom": [4], "top": [1]},
}


def test_a_table_too_small_for_its_vocabulary_is_told(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    """Five rows are left for values, of nine: each seen as often as the others."""
    rows = [f"{n % 2},item{n % 9}" for n in range(900)]
    (tmp_path / "a.csv").write_text("\n".join(["y,item", *rows]) + "\n")
    raw = yaml.safe_load(recipe_file.read_text())
    recipe_file.write_text(json.dumps({**raw, **FULL, "dense": {}}))
    note = "note    item: table item is full: 4 values of its vocabulary have no row (400 look-ups"
    checked = dlrmx("check", "--data", recipe_file).stdout
    assert note in checked
    shown = dlrmx("data", "show", recipe_file).stdout
    assert note in shown
    assert "optimum NE" not in shown
    assert "data    " in checked
    assert "label mean 0.5" in checked


def test_data_that_are_not_prepared_are_named(dlrmx: Dlrmx, recipe_file: Path) -> None:
    done = dlrmx("data", "show", recipe_file)
    assert done.exit_code == 2
    assert "no prepared data" in done.stderr
