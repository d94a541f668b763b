"""`-s a.b.c=value`."""

from pathlib import Path
from typing import Any

import pytest

from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.overrides import apply_overrides
from dlrmx.recipe.yaml_file import parse_yaml


def override(text: str, *overrides: str) -> Any:
    return apply_overrides(parse_yaml(text, "r.yaml"), overrides)[0].value


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("1e-3", 0.001),
        ("off", "off"),
        ("[1, 2]", [1, 2]),
        ("{x: 1}", {"x": 1}),
        ("", None),
        ("a=b", "a=b"),
        ('"5"', "5"),
    ],
)
def test_values_are_yaml(given: str, value: Any) -> None:
    assert override("a: {b: 0, c: 1}", f"a.b={given}") == {"a": {"b": value, "c": 1}}


def test_sections_on_the_way_are_made_and_the_last_wins() -> None:
    assert override("a: 1", "b.c.d=1", "b.c.d=2", "b.c.e=3") == {"a": 1, "b": {"c": {"d": 2, "e": 3}}}


def test_the_document_stays_as_it_was() -> None:
    document = parse_yaml("a: {b: 0}", "r.yaml")
    apply_overrides(document, ["a.b=1"])
    assert document.value == {"a": {"b": 0}}


def test_a_distance_in_another_unit_replaces_the_first(example: Path) -> None:
    recipe = load_recipe(example, ["train.stop.steps=30", "checkpoint.every.minutes=5"]).recipe
    assert recipe.train.stop.model_dump() == {"steps": 30}
    assert recipe.checkpoint.every is not None
    assert recipe.checkpoint.every.model_dump() == {"minutes": 5}


@pytest.mark.parametrize("text", ["foo", "=1", "a..b=1", ".a=1", "seed", "a="])
def test_malformed_ones_are_told(problems: Any, text: str) -> None:
    assert problems(text)


def test_all_problems_of_overrides_at_once(problems: Any) -> None:
    found = problems("nonsense", "seed.x=1", "train.batch=[", "model.top=.nan", "data.rows=0")
    assert {key for key, _ in found} == {"data.rows", "seed.x", "train.batch", "model.top", ""}


def test_a_problem_names_the_option(example: Path) -> None:
    with pytest.raises(Exception, match=r"^-s: train\.batch: must be at least 1, not 0"):
        load_recipe(example, ["train.batch=0"])


def test_places_below_a_replaced_value_are_forgotten(example: Path) -> None:
    origins = load_recipe(example, ["data.pooling={history: {mean: 2, max: 4}}"]).origins
    assert origins["data.pooling.history.mean"] == "-s"
    assert origins["data.rows"] == f"recipe {example}:7"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("a={b: 1, b: 2}", "-s: a.b: given twice\n    keep one of them"),
        ("a.b=[1, .inf]", "-s: a.b[1]: .inf is not a finite number"),
    ],
)
def test_a_fault_within_a_value_is_told_under_its_own_key(setting: str, told: str) -> None:
    found, _ = apply_overrides(parse_yaml("a: {b: 0}", "r.yaml"), [setting])
    assert [str(problem) for problem in found.problems] == [told]
