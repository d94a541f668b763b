"""Which split a row belongs to: by a hash ("hash-split-v1", the same whatever the recipe's seed), or by its place.

By hash, a row's key is its number over all files, or text64-v1 of its value in a column. h = mix64(key +
0x5D588B656C078965); with h / 2**64 below `validation` the row validates, below `validation + test` it tests, else it
trains. By fraction of n rows in stored order, bad ones too, training ends at row round(n (1 - validation - test)); the
`first` of the two others, validation unless told, goes on to row round(n (1 - s)), where s is the fraction of the last.
By files, a file's rows are of the split that names it; of a file that both name, `first` has ceil(n / 2) rows.
"""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.hashing import UInt64s, mix64
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.schema import Split as SplitSettings

SPLIT_HASH = "hash-split-v1"
SplitName = Literal["train", "validation", "test"]
HeldOut = Literal["validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
# (row over all files, position in SPLITS): from this row on, rows are of that split.
Cuts = tuple[tuple[int, int], ...]

# Ids are made of the same text hash: the constant parts the two.
_KEY = np.uint64(0x5D588B656C078965)


def assign(keys: UInt64s, settings: SplitSettings) -> NDArray[np.uint8]:
    """By hash: the split of each of n keys, as (n,) positions in SPLITS."""
    hashes = mix64(keys + _KEY)
    validation = _threshold(settings.fraction("validation"))
    # In this order, so that a larger `test` moves no row out of validation.
    tests = hashes < _threshold(settings.fraction("validation") + settings.fraction("test"))
    return np.where(hashes < validation, np.uint8(1), np.where(tests, np.uint8(2), np.uint8(0)))


def by_place(cuts: Cuts, first: int, count: int) -> NDArray[np.uint8]:
    """By fraction or files: the split of each of `count` rows from row `first` of all files on."""
    starts = np.array([row for row, _ in cuts])
    splits = np.array([split for _, split in cuts], dtype=np.uint8)
    return splits[np.searchsorted(starts, np.arange(first, first + count), side="right") - 1]


def fraction_cuts(rows: int, settings: SplitSettings) -> Cuts:
    """Those of all rows."""
    early, late = _in_order(settings)
    held_out = settings.fraction("validation") + settings.fraction("test")
    ends = [round(rows * (1 - held_out)), round(rows * (1 - settings.fraction(late)))]
    return (0, 0), (ends[0], SPLITS.index(early)), (ends[1], SPLITS.index(late))


def file_cuts(path: str, first: int, rows: int, settings: SplitSettings) -> Cuts:
    """Those of one file, whose rows begin at row `first` of all files."""
    named = [name for name in _in_order(settings) if _is_named(path, settings.files(name))]
    if not named:
        return ((first, 0),)
    half = first + -(-rows // 2)
    return tuple((begin, SPLITS.index(name)) for begin, name in zip([first, half], named, strict=False))


def check_files(paths: Sequence[str], settings: SplitSettings) -> None:
    """Raises InputError for each pattern that names none of the files."""
    problems = [
        Problem(f"none of data.files ends in {pattern}", key=f"data.split.{name}", hint=f"The first: {paths[0]}.")
        for name in _in_order(settings)
        for pattern in settings.files(name)
        if not any(_is_named(path, [pattern]) for path in paths)
    ]
    if problems:
        raise InputError(problems)


def _in_order(settings: SplitSettings) -> tuple[HeldOut, HeldOut]:
    return ("validation", "test") if settings.first == "validation" else ("test", "validation")


def _is_named(path: str, patterns: Sequence[str]) -> bool:
    return any(PurePath(path).match(pattern) for pattern in patterns)


def _threshold(fraction: float) -> np.uint64:
    return np.uint64(min(int(fraction * 2**64), 2**64 - 1))
