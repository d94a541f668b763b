"""A worker reads only data that was prepared for the tables of its recipe."""

from pathlib import Path
from typing import cast

import pytest

from data_recipes import tabular
from dlrmx.data.prepare import prepare
from dlrmx.errors import InputError
from dlrmx.plan.shards import Plan
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.layout import RunPaths
from dlrmx.train.session import Clock, Session, Task
from dlrmx.train.step import Parts


def made(root: Path, rows: dict[str, int]) -> Recipe:
    return tabular([root / "a.csv"], {name: {} for name in rows}, rows)


def session(recipe: Recipe, data: Path) -> Session:
    """One that is asked for its data alone."""
    run = RunPaths(data)
    task = Task(
        run=run, attempt=run.attempt(1), recipe=recipe, plan=Plan(1, {}), data=data, checkpoint=None, evaluate=None
    )
    return Session(task, cast(Parts, None), Clock())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"item": 40, "user": 60}, "prepared for a table of 50 rows for feature item, the recipe has 40"),
        ({"item": 50, "user": 1000}, "prepared for a table of 60 rows for feature user, the recipe has 1,000"),
        ({"item": 50}, "prepared for a table of 60 rows for feature user, the recipe has 0"),
        ({"item": 50, "user": 60, "y": 9}, "prepared for a table of 0 rows for feature y, the recipe has 9"),
    ],
)
def test_data_prepared_for_other_tables_are_refused(rows: dict[str, int], expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,item,user\n1,a,b\n")
    recipe = made(tmp_path, {"item": 50, "user": 60})
    data = prepare(recipe, tmp_path)
    assert session(recipe, data).split("train").rows == 1
    with pytest.raises(InputError, match=expected):
        session(made(tmp_path, rows), data).split("train")
