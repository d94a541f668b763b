"""recipes list, show, copy, schema."""

import json
from pathlib import Path

import dlrmx_recipes
from scripted import RECIPE, Dlrmx


def test_the_list_is_that_of_the_shipped_files(dlrmx: Dlrmx) -> None:
    found = json.loads(dlrmx("recipes", "list", "--json").stdout)["recipes"]
    assert [entry["name"] for entry in found] == list(dlrmx_recipes.shipped())
    assert all(entry["about"] for entry in found)  # each opens with a header
    text = dlrmx("recipes", "list").stdout
    assert text.startswith("recipe")
    assert max(map(len, text.splitlines())) <= 80
    assert [entry["about"] for entry in found if entry["about"] not in " ".join(text.split())] == []


def test_show_prints_the_file(dlrmx: Dlrmx, recipe_file: Path) -> None:
    assert dlrmx("recipes", "show", recipe_file).stdout == RECIPE


def test_resolved_says_what_set_each_value(dlrmx: Dlrmx, recipe_file: Path) -> None:
    words = ("recipes", "show", recipe_file, "-s", "train.batch=256", "-s", "cluster.workers_per_node=3")
    settings = json.loads(dlrmx(*words, "--json").stdout)["settings"]
    assert settings["train.batch"] == {"value": 256, "from": "-s"}
    assert settings["cluster.workers_per_node"] == {"value": 3, "from": "-s"}
    assert settings["data.rows"]["value"] == 2000
    assert "clicks.yaml:4" in settings["data.rows"]["from"]
    assert settings["seed"] == {"value": 0, "from": "default"}
    lines = dlrmx(*words, "--resolved").stdout.splitlines()
    assert ["train.batch", "256", "-s"] in [line.split() for line in lines]
    assert dlrmx(*words).stdout.splitlines() == lines  # -s without --resolved is not ignored


def test_a_recipe_with_mistakes_can_still_be_read(dlrmx: Dlrmx, recipe_file: Path) -> None:
    recipe_file.write_text("dlrmx: 1\nnonsense: true\n")
    assert dlrmx("recipes", "show", recipe_file).stdout == "dlrmx: 1\nnonsense: true\n"
    assert dlrmx("recipes", "show", recipe_file, "--resolved").exit_code == 2


def test_copy_makes_a_file_to_edit_and_overwrites_none(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    assert dlrmx("recipes", "copy", recipe_file, "mine.yaml").exit_code == 0
    assert (tmp_path / "mine.yaml").read_text() == RECIPE
    (tmp_path / "mine.yaml").write_text("mine")
    again = dlrmx("recipes", "copy", recipe_file, "mine.yaml")
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert (tmp_path / "mine.yaml").read_text() == "mine"


def test_a_file_that_is_no_text_is_neither_shown_nor_copied(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    recipe_file.write_bytes(b"\x7fELF\xff")
    for words in (("show", recipe_file), ("copy", recipe_file, "mine.yaml")):
        done = dlrmx("recipes", *words)
        assert done.exit_code == 2
        assert "clicks.yaml:1: not UTF-8 text" in done.stderr
    assert not (tmp_path / "mine.yaml").exists()


def test_the_schema_is_json(dlrmx: Dlrmx) -> None:
    assert "properties" in json.loads(dlrmx("recipes", "schema").stdout)
