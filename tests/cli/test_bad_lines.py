"""What is wrong with the data is told at the end of preparation and by `data show`."""

from pathlib import Path
from typing import Any

from dlrmx.recipe.load import dump_recipe
from dlrmx.recipe.schema import Recipe

RECIPE: dict[str, Any] = {
    "dlrmx": 1,
    "name": "bad",
    "data": {"kind": "tabular", "files": ["a.csv"], "label": {"column": "y"}, "bad_rows": "skip"},
    "features": {"item": {"ids": "identity"}},
    "tables": {"item": {"rows": 10, "dim": 4, "bad_ids": "clamp"}},
    "model": {"kind": "dlrm", "bottom": [4], "top": [1], "interaction": "cat"},
    "optimizer": {"dense": {"kind": "sgd", "lr": 0.1}, "sparse": {"kind": "sgd", "lr": 0.1}},
    "train": {"batch": 4, "stop": {"epochs": 1}},
}


def test_bad_rows_and_ids_are_told(dlrmx: Any, tmp_path: Path) -> None:
    lines = ["y,item", "2,1", *(f"1,{n}" for n in range(9)), "1,9"]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    path = tmp_path / "bad.yaml"
    path.write_text(dump_recipe(Recipe.model_validate(RECIPE)))
    told = [
        f"1 of 11 rows are bad; left out:\n  {tmp_path / 'a.csv'}:2: y: the label is 2",
        f"item: 1 values are no ids of table item:\n  {tmp_path / 'a.csv'}:12: item: '9'",
    ]
    prepared = dlrmx("data", "prepare", str(path))
    assert prepared.exit_code == 0, prepared.output
    shown = dlrmx("data", "show", str(path))
    for text in told:
        assert text in prepared.stderr
        assert text in shown.stdout
