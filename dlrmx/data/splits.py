"""Which split a row belongs to: disjoint by a hash ("hash-split-v1"), the same whatever the recipe's seed.

A row's key is its number over all files, or text64-v1 of its value in a column. h = mix64(key + 0x5D588B656C078965);
with h / 2**64 below `validation` the row validates, below `validation + test` it tests, else it trains.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.hashing import UInt64s, mix64
from dlrmx.recipe.schema import Split as SplitSettings

SPLIT_HASH = "hash-split-v1"
SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")

# Ids are made of the same text hash: the constant parts the two.
_KEY = np.uint64(0x5D588B656C078965)


def assign(keys: UInt64s, settings: SplitSettings) -> NDArray[np.uint8]:
    """The split of each of n keys, as (n,) positions in SPLITS."""
    hashes = mix64(keys + _KEY)
    validation = _threshold(settings.validation)
    # In this order, so that a larger `test` moves no row out of validation.
    tests = hashes < _threshold(settings.validation + settings.test)
    return np.where(hashes < validation, np.uint8(1), np.where(tests, np.uint8(2), np.uint8(0)))


def _threshold(fraction: float) -> np.uint64:
    return np.uint64(min(int(fraction * 2**64), 2**64 - 1))
