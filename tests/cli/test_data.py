"""data prepare and show."""

import json
from pathlib import Path

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


def test_data_that_are_not_prepared_are_named(dlrmx: Dlrmx, recipe_file: Path) -> None:
    done = dlrmx("data", "show", recipe_file)
    assert done.exit_code == 2
    assert "no prepared data" in done.stderr
