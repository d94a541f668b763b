"""What a recipe of Criteo's layout may say: its columns have names of their own, a field is one value."""

from typing import Any

import pytest

from dlrmx.errors import Problem
from dlrmx.recipe.rules import check_rules
from dlrmx.recipe.schema import Recipe

BASE: dict[str, Any] = {
    "dlrmx": 1,
    "name": "criteo",
    "data": {"kind": "criteo", "files": ["day_*"]},
    "dense": {"I1": {"transform": "log1p"}},
    "features": {"C1": {}, "second": {"column": "C2", "table": "C1"}},
    "tables": {"C1": {"rows": 10, "dim": 4}},
    "model": {"kind": "dlrm", "bottom": [4], "top": [1]},
    "optimizer": {"dense": {"kind": "sgd", "lr": 0.1}, "sparse": {"kind": "sgd", "lr": 0.1}},
    "train": {"batch": 64, "stop": {"epochs": 1}},
}


def problems(**sections: Any) -> list[Problem]:
    return check_rules(Recipe.model_validate({**BASE, **sections}))


def test_a_plain_one_is_fine() -> None:
    assert problems() == []
    assert problems(tables={"C1": {"rows": 10, "dim": 4, "bad_ids": "hash"}}) == []
    assert problems(data={**BASE["data"], "split": {"on": "C26"}}) == []


@pytest.mark.parametrize(
    ("sections", "key", "what"),
    [
        ({"dense": {"I14": {}}}, "dense.I14", 'no integer column "I14"'),
        ({"dense": {"C1": {}}}, "dense.C1", 'no integer column "C1"'),
        ({"features": {"C1": {"column": "I1"}}}, "features.C1.column", 'no category column "I1"'),
        ({"features": {"C1": {}, "C27": {"table": "C1"}}}, "features.C27.column", 'no category column "C27"'),
        ({"data": {**BASE["data"], "split": {"on": "I1"}}}, "data.split.on", 'no category column "I1"'),
        ({"features": {"C1": {"separator": "|"}}}, "features.C1.separator", "has no effect"),
        ({"features": {"C1": {"max_ids": 3}}}, "features.C1.max_ids", "has no effect"),
        ({"features": {"C1": {"weights": "w"}}}, "features.C1.weights", "has no effect"),
        ({"features": {"C1": {"min_count": 3}}}, "features.C1.min_count", "has no effect"),
        ({"features": {"C1": {"expand": 3, "missing": "drop"}}}, "features.C1.expand", "no id to expand"),
    ],
)
def test_what_the_layout_lacks(sections: dict[str, Any], key: str, what: str) -> None:
    found = problems(**sections)
    assert [problem.key for problem in found] == [key]
    assert what in found[0].what
