"""Which split a row belongs to, held against a plain-Python implementation."""

import numpy as np
import pytest

from dlrmx.data.splits import SPLITS, Cuts, assign, by_place, check_files, file_cuts, fraction_cuts
from dlrmx.errors import InputError
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


def cut(cuts: Cuts, rows: int, first: int = 0) -> list[str]:
    return [SPLITS[split] for split in by_place(cuts, first, rows)]


def test_the_last_rows_are_held_out() -> None:
    settings = Split(by="fraction", validation=0.2, test=0.1)
    assert cut(fraction_cuts(10, settings), 10) == ["train"] * 7 + ["validation"] * 2 + ["test"]
    settings = Split(by="fraction", validation=0.2, test=0.1, first="test")
    assert cut(fraction_cuts(10, settings), 10) == ["train"] * 7 + ["test"] + ["validation"] * 2
    assert cut(fraction_cuts(10, settings), 3, first=6) == ["train", "test", "validation"]
    assert cut(fraction_cuts(3, Split(by="fraction", validation=0, test=0)), 3) == ["train"] * 3


def test_files_by_the_ends_of_their_paths() -> None:
    settings = Split(by="files", validation=["day_23*"], test=["late/*.csv"])
    assert cut(file_cuts("/data/day_2", 5, 2, settings), 2, first=5) == ["train"] * 2
    assert cut(file_cuts("/data/day_23.gz", 5, 2, settings), 2, first=5) == ["validation"] * 2
    assert cut(file_cuts("/data/late/a.csv", 0, 1, settings), 1) == ["test"]
    assert cut(file_cuts("/data/a.csv", 0, 1, settings), 1) == ["train"]


def test_a_file_in_both_is_halved() -> None:
    both = ["day_23"]
    settings = Split(by="files", validation=both, test=both)
    assert cut(file_cuts("day_23", 100, 5, settings), 5, first=100) == ["validation"] * 3 + ["test"] * 2
    settings = Split(by="files", validation=both, test=both, first="test")
    assert cut(file_cuts("day_23", 100, 5, settings), 5, first=100) == ["test"] * 3 + ["validation"] * 2


def test_a_pattern_that_names_no_file_is_refused() -> None:
    settings = Split(by="files", validation=["day_23"], test=["day_32"])
    with pytest.raises(InputError, match=r"data\.split\.test: none of data\.files ends in day_32"):
        check_files(["/data/day_22", "/data/day_23"], settings)
