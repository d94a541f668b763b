"""How prepared data are shown."""

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
    item = shown["features"]["item"]
    assert f"  {item['distinct']} of 1,000  " in text


def test_all_about_a_feature(dlrmx: Dlrmx, recipe_file: Path) -> None:
    assert dlrmx("data", "prepare", recipe_file).exit_code == 0
    shown = json.loads(dlrmx("data", "show", recipe_file, "--json").stdout)
    item = shown["features"]["item"]
    text = dlrmx("data", "show", recipe_file, "--feature", "item").stdout
    for row in item["top"]:
        assert f"{row['row']:,}" in text
        assert row["share"] == row["lookups"] / sum(item["histogram"])
    lines = text.splitlines()
    # 16 ranges of 62 or 63 rows; the longest bar is the busiest one's.
    loads = [sum(item["histogram"][first : first + 4]) for first in range(0, 64, 4)]
    bars = [line.count("█") for line in lines if line.endswith("%")][-16:]
    assert bars.index(40) == loads.index(max(loads))
    refused = dlrmx("data", "show", recipe_file, "--feature", "itme")
    assert refused.exit_code == 2
    assert "there is no feature itme" in refused.stderr
    assert "age is a dense column" in dlrmx("data", "show", recipe_file, "--feature", "age").stderr


def test_it_fits_a_terminal_and_says_whether_the_recipe_fits(dlrmx: Dlrmx, recipe_file: Path) -> None:
    assert dlrmx("data", "prepare", recipe_file).exit_code == 0
    text = dlrmx("data", "show", recipe_file).stdout
    assert max(len(line) for line in text.splitlines()[1:]) <= 80
    assert "fits: yes" in text
    tight = dlrmx("data", "show", recipe_file, "-s", "cluster.memory_gib=0.00001").stdout
    assert "fits: no" in tight
    fit = json.loads(dlrmx("data", "show", recipe_file, "--json", "-s", "cluster.memory_gib=0.00001").stdout)["fit"]
    assert not fit["fits"]
    assert fit["findings"][-1]["kind"] == "no"
