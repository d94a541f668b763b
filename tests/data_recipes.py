"""Small recipes and files for the tests of data."""

from pathlib import Path
from typing import Any

import numpy as np

from dlrmx.data.batches import Batch, Split
from dlrmx.recipe.schema import Recipe

REST: dict[str, Any] = {
    "dlrmx": 1,
    "name": "test",
    "model": {"kind": "dlrm", "bottom": [4], "top": [1], "interaction": "cat"},
    "optimizer": {"dense": {"kind": "sgd", "lr": 0.1}, "sparse": {"kind": "sgd", "lr": 0.1}},
    "train": {"batch": 64, "stop": {"epochs": 1}},
}


def recipe(data: dict[str, Any], features: dict[str, Any], rows: dict[str, int], **sections: Any) -> Recipe:
    """A recipe with tables of the given rows."""
    tables = {name: {"rows": count, "dim": 4} for name, count in rows.items()}
    return Recipe.model_validate({**REST, "data": data, "features": features, "tables": tables, **sections})


def tabular(
    files: list[Path],
    features: dict[str, Any],
    rows: dict[str, int],
    *,
    data: dict[str, Any] | None = None,
    **more: Any,
) -> Recipe:
    """A recipe over files, label column `y`; all rows train unless `data` says otherwise."""
    section = {
        "kind": "tabular",
        "files": [str(path) for path in files],
        "label": {"column": "y"},
        "split": {"validation": 0, "test": 0},
        **(data or {}),
    }
    return recipe(section, features, rows, **more)


def whole(folder: Path, split: str = "train") -> Batch:
    """All rows of a split, as stored."""
    opened = Split(folder, split)
    return opened.take(np.arange(opened.rows))
