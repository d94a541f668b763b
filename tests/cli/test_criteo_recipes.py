"""The shipped recipes for Criteo's sets, from the command line: checked and planned without the data, then trained."""

import json
from pathlib import Path

import pytest

import dlrmx_recipes
from criteo_files import random_rows, write
from dlrmx.recipe.load import load_recipe
from scripted import Dlrmx

NAMES = ["criteo_kaggle", "criteo_terabyte", "mlperf_dcnv2"]


@pytest.mark.parametrize("name", NAMES)
def test_check_and_plan_need_no_data(name: str, dlrmx: Dlrmx) -> None:
    assert dlrmx("check", name).exit_code == 0
    planned = dlrmx("plan", name, "-s", "cluster.memory_gib=600")
    assert planned.exit_code == 0, planned.output


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_small_copy_trains(name: str, dlrmx: Dlrmx, tmp_path: Path) -> None:
    rows = random_rows(2000)
    files = [write(tmp_path / "day_0", *rows[:1500]), write(tmp_path / "day_23", *rows[1500:])]
    recipe = load_recipe(dlrmx_recipes.shipped()[name]).recipe
    settings = [f"tables.{table}.rows=60" for table in recipe.tables]
    settings += [
        f"data.files=[{files[0]}, {files[1]}]",
        "train.batch=128",
        "train.evaluate.every={steps: 5}",
        "cluster.memory_gib=4",
    ]
    done = dlrmx("train", name, *(word for setting in settings for word in ("-s", setting)), "--name", "small")
    assert done.exit_code == 0, done.output
    status = json.loads(dlrmx("status", "small", "--json").stdout)
    assert status["state"] == "done"
