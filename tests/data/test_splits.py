"""Which split a row belongs to, held against a plain-Python implementation."""

import numpy as np

from dlrmx.data.splits import SPLITS, assign
from dlrmx.recipe.schema import Split
from hash_reference import MASK, mix, text_hash


def expected(key: int, validation: float, test: float) -> str:
    h = mix((key + 0x5D588B656C078965) & MASK) / 2**64
    return "validation" if h < validation else "test" if h < validation + test else "train"


def test_rows_are_split_as_described() -> None:
    keys = np.array([*range(2000), 2**64 - 1, text_hash("user 7")], dtype=np.uint64)
    splits = assign(keys, Split(validation=0.05, test=0.1))
    assert [SPLITS[split] for split in splits] == [expected(int(key), 0.05, 0.1) for key in keys]


def test_the_split_never_changes() -> None:
    splits = assign(np.arange(100_000, dtype=np.uint64), Split())
    assert np.flatnonzero(splits == 1)[:4].tolist() == [29, 68, 71, 86]
    assert np.bincount(splits).tolist() == [89899, 4999, 5102]


def test_no_validation_and_no_test() -> None:
    assert not assign(np.arange(1000, dtype=np.uint64), Split(validation=0, test=0)).any()


def test_a_larger_test_split_takes_no_row_from_validation() -> None:
    keys = np.arange(10_000, dtype=np.uint64)
    small, large = assign(keys, Split(test=0.05)), assign(keys, Split(test=0.3))
    assert np.array_equal(small == 1, large == 1)
    assert (large[small == 2] == 2).all()
