"""Reading a plan file: the plan itself, or everything that is wrong with it."""

import json
from pathlib import Path

import pytest

from dlrmx.errors import InputError
from dlrmx.plan.load import load_plan
from dlrmx.plan.planner import make_plan
from plan_recipes import plan_recipe, processors

RECIPE = plan_recipe({"a": 100, "b": 10})


def test_what_was_planned_is_read_back(tmp_path: Path) -> None:
    plan = make_plan(RECIPE, processors(2, 1 << 30))
    (tmp_path / "plan.json").write_text(plan.to_json())
    assert load_plan(tmp_path / "plan.json", RECIPE, processors(2, 1 << 30)) == plan


def test_all_that_differs_from_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(make_plan(plan_recipe({"a": 100, "c": 10}), processors(3, 1 << 30)).to_json())
    with pytest.raises(InputError) as caught:
        load_plan(path, RECIPE, processors(2, 1 << 30))
    assert [(problem.where, problem.key) for problem in caught.value.problems] == [
        (str(path), "world"),
        (str(path), "tables.b"),
        (str(path), "tables.c"),
    ]


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the plan: No such file"):
        load_plan(tmp_path / "plan.json", RECIPE, processors(2, 1 << 30))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        "{}",
        '{"version": 2, "world": 2, "notes": [], "tables": []}',
        json.dumps({"version": 2, "world": 2, "notes": [], "tables": {"a": {"rows": 1}}}),
        make_plan(RECIPE, processors(2, 1 << 30)).to_json().replace('"version": 2', '"version": 3'),
        make_plan(RECIPE, processors(2, 1 << 30)).to_json().replace("[[0, ", '[["zero", '),
        make_plan(RECIPE, processors(2, 1 << 30)).to_json().replace('"hbm", 0.0]', '"hbm", "x"]'),
        make_plan(RECIPE, processors(2, 1 << 30)).to_json().replace('"hbm", 0.0]', '"hbm", NaN]'),
    ],
)
def test_not_a_plan(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InputError, match="not a plan file"):
        load_plan(tmp_path / "plan.json", RECIPE, processors(2, 1 << 30))
