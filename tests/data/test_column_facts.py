"""What a column of a sample holds."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dlrmx.data.column_facts import ColumnFacts, column_facts, estimate_distinct


def facts(values: list[Any], kind: pa.DataType | None = None, rows_in_all: int | None = None) -> ColumnFacts:
    return column_facts("c", pa.array(values, kind or pa.string()), rows_in_all or len(values))


def test_texts_that_are_all_numbers_are_numbers() -> None:
    found = facts(["1", " 2.5", "", "-3e1", "1", "NA"])
    assert (found.kind, found.missing, found.distinct, found.words) == ("numbers", 2, 3, ())
    assert found.numbers is not None
    assert (found.numbers.minimum, found.numbers.maximum, found.numbers.whole) == (-30, 2.5, False)
    rows = [1, 2.5, -30, 1]
    assert (found.numbers.mean, found.numbers.std) == pytest.approx((np.mean(rows), np.std(rows)))
    assert found.numbers.few == ((-30, 1), (1, 2), (2.5, 1))


def test_numbers_whose_squares_are_beyond_a_float() -> None:
    found = facts(["1e300", "3e300"]).numbers
    assert found is not None
    assert (found.mean, found.std) == pytest.approx((2e300, 1e300))
    zeros = facts(["0", "0.0"]).numbers
    assert zeros is not None
    assert zeros.std == 0


def test_words_beside_numbers_mean_missing_and_are_told() -> None:
    found = facts(["1", "NULL", "\\N", "2", "NULL", ""])
    assert (found.kind, found.missing, set(found.words)) == ("numbers", 4, {"NULL", "\\N"})


@pytest.mark.parametrize("word", ["inf", "1_000", "0x10", "one"])
def test_what_is_no_finite_number_makes_a_text_column(word: str) -> None:
    assert facts(["1", word, "-"]).kind == "text"


def test_words_beside_texts_are_values() -> None:
    found = facts(["a", "-", "", "NA", None])
    assert (found.kind, found.missing, found.distinct, found.words) == ("text", 3, 2, ())


@pytest.mark.parametrize(
    ("text", "exact"), [("06680", False), ("-07", False), ("1" * 16, False), ("0", True), ("0.5", True)]
)
def test_leading_zeros_and_more_digits_than_a_float_has_are_codes(text: str, exact: bool) -> None:
    numbers = facts(["1", text]).numbers
    assert numbers is not None and numbers.exact is exact


def test_typed_columns() -> None:
    whole = facts([3, None, 3, 7], pa.int64())
    assert (whole.kind, whole.missing, whole.distinct, whole.type) == ("numbers", 1, 2, "int64")
    assert facts([1.5, float("nan"), None], pa.float32()).missing == 2
    assert facts([2**60, 1], pa.int64()).numbers.exact is False  # type: ignore[union-attr]
    assert facts([True, False], pa.bool_()).numbers.few == ((0, 1), (1, 1))  # type: ignore[union-attr]
    assert facts(["a", "b", "a"], pa.dictionary(pa.int8(), pa.string())).kind == "text"
    assert facts([0], pa.timestamp("s")).kind == "other"
    assert facts([None, None], pa.null()).missing == 2
    assert facts([Decimal("1.5")], pa.decimal128(5, 2)).numbers.mean == 1.5  # type: ignore[union-attr]


def test_lists() -> None:
    found = facts([["a", "b"], [], None, ["a", "c", None]], pa.list_(pa.string()))
    assert (found.kind, found.missing, found.distinct, found.longest) == ("list", 2, 3, 3)
    assert found.mean_values == 1
    assert facts([[1.5]], pa.list_(pa.float64())).kind == "other"


@pytest.mark.parametrize(
    ("texts", "separator"),
    [
        (["a|b", "b|c", "a", "c|a"], "|"),
        (["a;b", "b;c", "a;c", "c;a"], ";"),
        (["1,2", "2,3", "1,3", "3,1", "2,1", "1", "2", "3"], ","),
        (["x y", "y z", "x z", "z x", "y x", "x", "y", "z"], " "),
        (["Bridges, The", "Jaws", "Apartment, The", "Alien"], None),
        (["New York", "New Jersey", "Ohio", "Texas"], None),
        (["a"] * 30 + ["b|c"], None),
        (["", "NA"], None),
    ],
)
def test_a_separator_is_what_leaves_fewer_different_parts(texts: list[str], separator: str | None) -> None:
    found = facts(texts)
    assert found.separator == separator
    if separator is not None:
        parts = [part for text in texts for part in text.split(separator)]
        assert (found.kind, found.distinct) == ("list", len(set(parts)))
        assert found.mean_values == len(parts) / len(texts)
        assert found.longest == max(len(text.split(separator)) for text in texts)


def test_distinct_values_of_all_rows_are_estimated_from_those_met_once() -> None:
    counts = np.array([5, 3, 1, 1, 1, 1])
    assert estimate_distinct(counts, 12, 12) == 6
    assert estimate_distinct(counts, 12, 1200) == 2 + 4 * 10
    assert estimate_distinct(np.ones(10, dtype=np.int64), 10, 20) == 14
    assert estimate_distinct(np.zeros(0, dtype=np.int64), 0, 100) == 0


def test_the_estimate_is_of_rows_that_have_a_value() -> None:
    assert facts(["a", "b", "", ""], rows_in_all=400).estimate == 20  # 200 values in all: sqrt(200 / 2) each


@pytest.mark.parametrize("skew", [0.0, 1.1])
def test_the_estimate_is_within_its_bound(skew: float) -> None:
    random = np.random.default_rng(1)
    weights = 1 / np.arange(1, 5001) ** skew
    rows = random.choice(5000, size=100_000, p=weights / weights.sum())
    truth = len(np.unique(rows))
    counts = np.unique(rows[:1000], return_counts=True)[1]
    assert truth / 10 <= estimate_distinct(counts, 1000, len(rows)) <= truth * 10
