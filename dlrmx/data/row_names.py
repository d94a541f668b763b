"""What stands behind rows of a table: the value of a vocabulary or a number, where the recipe's ids can be undone."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dlrmx.data.permute import restore_ids
from dlrmx.data.vocabulary import MISSING, RESERVED, UNSEEN, read_texts, vocabulary_tables
from dlrmx.data.vocabulary_files import PREFIX
from dlrmx.recipe.schema import Criteo, Recipe, Synthetic


def row_names(folder: Path, recipe: Recipe, feature: str, rows: Sequence[int]) -> list[str]:
    """For each row of the feature's table its value as text, "(missing)" or "(unseen)"; "" where nobody knows.

    `folder`: the recipe's prepared data. Hashes cannot be undone; a remainder stands for all values that share it.
    """
    if isinstance(recipe.data, Synthetic):
        return [""] * len(rows)
    settings = recipe.features[feature]
    size = recipe.tables[settings.table].rows
    plain = restore_ids(np.array(rows, dtype=np.int64), size).tolist()
    value = _values(folder, recipe, feature, size)
    return ["(missing)" if number == MISSING else value(number) for number in plain]


def _values(folder: Path, recipe: Recipe, feature: str, size: int) -> Callable[[int], str]:
    """From an id before it was permuted, not that of missing values, to its value."""
    settings = recipe.features[feature]
    criteo = isinstance(recipe.data, Criteo)

    def number(plain: int) -> str:
        return f"{plain - 1:08x}" if criteo else str(plain - 1)

    if settings.ids == "hash":
        return lambda plain: ""
    if settings.ids == "identity":
        return number
    if settings.ids == "modulo":
        return lambda plain: f"{number(plain)} modulo {size - 1:,}"
    place = list(vocabulary_tables(recipe)).index(settings.table)
    known = _keys(folder / f"{PREFIX}{place}.npy") if criteo else _texts(folder / f"{PREFIX}{place}.parquet")
    return lambda plain: "(unseen)" if plain == UNSEEN else known(plain)


def _texts(path: Path) -> Callable[[int], str]:
    texts = read_texts(path)
    return lambda plain: str(texts[plain - RESERVED].as_py())


def _keys(path: Path) -> Callable[[int], str]:
    keys, ids = np.load(path, mmap_mode="r")
    return lambda plain: f"{int(keys[np.flatnonzero(ids == plain)[0]]):08x}"
