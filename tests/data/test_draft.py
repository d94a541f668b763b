"""What each column of a survey is taken for."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dlrmx.data.column_facts import column_facts
from dlrmx.data.draft import CRITEO_DENSE, CRITEO_FEATURES, Draft, draft, round_up
from dlrmx.data.survey import Survey
from dlrmx.errors import InputError

ROWS = 100
COLOURS = ["red", "green", "blue", "red"] * 25
COINS = [0, 1, 0, 0] * 25


def drafted(columns: dict[str, Any], rows_in_all: int = ROWS) -> Draft:
    """The draft of a table; it has a label and a feature whatever else it has."""
    return draft(table({"label": COINS, "colour": COLOURS, **columns}, rows_in_all))


def table(columns: dict[str, Any], rows_in_all: int = ROWS) -> Survey:
    facts = tuple(column_facts(name, pa.array(values), rows_in_all) for name, values in columns.items())
    return Survey((Path("t.csv"),), None, 1, ROWS, 0, "", rows_in_all, facts)


def role(found: Draft, column: str) -> str:
    for kind, drafts in (("dense", found.dense), ("feature", found.features), ("left out", found.left_out)):
        if column in [entry.column for entry in drafts]:
            return kind
    return "label" if found.label.column == column else "nothing"


SPREAD = [1 + (n * 37) % 97 for n in range(ROWS)]  # whole numbers, many of them twice


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("price", [n + 0.5 for n in range(ROWS)], "dense"),
        ("amount", SPREAD, "dense"),
        ("user_id", SPREAD, "feature"),
        ("userId", SPREAD, "feature"),
        ("zip", [f"0{n % 50}" for n in range(ROWS)], "feature"),
        ("plain", [f"0{n % 50:02d}" for n in range(ROWS)], "feature"),
        ("hour", [n % 24 for n in range(ROWS)], "feature"),
        ("big", [2**60 + n % 50 for n in range(ROWS)], "feature"),
        ("member", [True, False] * 50, "feature"),
        ("tags", [["a", "b"], ["b"]] * 50, "feature"),
        ("tag_texts", ["a|b", "b|c", "c|a", "a"] * 25, "feature"),
        ("sometimes", ["x", None] * 50, "feature"),
        ("event_time", [1_600_000_000 + n for n in range(ROWS)], "left out"),
        ("created_at", [f"2024-01-{n % 28 + 1:02d}" for n in range(ROWS)], "left out"),
        ("watch_time", SPREAD, "dense"),
        ("row_id", list(range(7000, 7000 + ROWS)), "left out"),
        ("n", list(range(ROWS)), "left out"),
        ("session", [f"s{n}" for n in range(ROWS)], "left out"),
        ("", SPREAD, "left out"),
        ("version", ["v1"] * ROWS, "left out"),
        ("fraction", [0.5, None] * 50, "left out"),
        ("nothing", [None] * ROWS, "left out"),
        ("day", pa.array([0] * ROWS, pa.date32()), "left out"),
        ("score_id", [n + 0.5 for n in range(ROWS)], "dense"),
        ("float_id", [2.0**60 + n % 50 * 2.0**20 for n in range(ROWS)], "dense"),
    ],
)
def test_roles(name: str, values: Any, expected: str) -> None:
    assert role(drafted({name: values}), name) == expected


def test_every_column_has_one_role_and_left_out_ones_a_reason() -> None:
    columns = {"a": SPREAD, "b": COLOURS, "c": ["x"] * ROWS, "d": COINS}
    found = drafted(columns)
    used = [entry.column for drafts in (found.dense, found.features, found.left_out) for entry in drafts]
    assert sorted([found.label.column, *used]) == sorted([*columns, "label", "colour"])
    assert all(entry.why for entry in found.left_out)


# ---------------------------------------------------------------------------------------- label


def test_the_label_is_the_best_name_among_columns_of_0_and_1() -> None:
    label = draft(table({"member": [1] * 50 + [0] * 50, "click": COINS, "colour": COLOURS})).label
    assert (label.column, label.threshold, label.positive_rate, label.look) == ("click", None, 0.25, "")


def test_a_rating_is_positive_where_it_splits_the_rows_most_evenly() -> None:
    values = [1] * 10 + [2] * 20 + [3] * 15 + [4] * 30 + [5] * 25
    label = draft(table({"rating": values, "colour": COLOURS})).label
    assert (label.threshold, label.positive_rate) == (4, 0.55)
    assert "from 4 on; values are 1 to 5" in label.look
    label = draft(table({"label": [-1, 1] * 50, "colour": COLOURS})).label
    assert (label.threshold, label.positive_rate) == (1, 0.5)


def test_without_a_name_any_column_of_0_and_1_will_do_and_is_to_be_looked_at() -> None:
    label = draft(table({"colour": COLOURS, "a": COINS, "b": COINS})).label
    assert label.column == "a"
    assert "and so do b" in label.look


def test_a_label_of_one_class_is_to_be_looked_at() -> None:
    assert draft(table({"label": [0] * ROWS, "colour": COLOURS})).label.look == "all sampled rows are 0"


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"colour": COLOURS}, "no column can be the label\n.*The columns are colour"),
        ({"colour": COLOURS, "label": [None, *COINS[1:]]}, "column label has no value in 1 of 100 sampled rows"),
        ({"label": COINS, "price": [n + 0.5 for n in range(ROWS)]}, "no column is categorical"),
    ],
)
def test_tables_that_cannot_be_trained_on_are_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        draft(table(columns))


# ----------------------------------------------------------------------- transforms and table sizes


@pytest.mark.parametrize(
    ("values", "transform"),
    [
        ([0.5 * 1.15**n for n in range(ROWS)], "log1p"),
        ([-1.5, *[0.5 * 1.15**n for n in range(1, ROWS)]], "standardize"),
        ([1000 + n / 7 for n in range(ROWS)], "standardize"),
        ([n / 1e5 for n in range(ROWS)], "standardize"),
        ([n / 50 - 1 for n in range(ROWS)], "none"),
    ],
)
def test_transforms(values: list[float], transform: str) -> None:
    (column,) = drafted({"x": values}).dense
    assert column.transform == transform


def test_a_small_vocabulary_has_a_row_for_each_value_and_two_more() -> None:
    (feature,) = drafted({}).features
    assert (feature.ids, feature.rows, feature.note) == ("vocabulary", 5, "3 values")


def test_of_a_sample_the_values_of_all_rows_are_estimated_and_have_room() -> None:
    users = [f"u{n % 90}" for n in range(ROWS)]  # 80 of them once
    user = drafted({"user": users}, 10_000).features[1]
    assert (user.ids, user.rows) == ("vocabulary", 980)  # 10 + 80 * sqrt(100) = 810, and a fifth, and 2
    user = drafted({"user": users}, 100_000_000).features[1]
    assert (user.ids, user.rows) == ("hash", 97_000)
    assert user.look == "most values come once: they teach little"


def test_a_table_does_not_grow_without_bounds_unsaid() -> None:
    user = drafted({"user": [f"u{n % 90}" for n in range(ROWS)]}, 10**15).features[1]
    assert user.rows == 10_000_000
    assert "310,000,000 rows would hold all values" in user.look


@pytest.mark.parametrize(
    ("count", "rounded"), [(0.0, 3), (3, 3), (99, 99), (100, 100), (101, 110), (1234, 1300), (9901, 10000)]
)
def test_round_up(count: float, rounded: int) -> None:
    assert round_up(count) == rounded


# ------------------------------------------------------------------------------------------- names


def test_names_that_a_recipe_does_not_allow_are_made_plain_and_different() -> None:
    found = drafted({"a b": COLOURS, "a,b": COLOURS, "a_b": COLOURS, "!": COLOURS, "größe²": COLOURS})
    assert {feature.column: feature.name for feature in found.features} == {
        "colour": "colour",
        "a b": "a_b",
        "a,b": "a_b_2",
        "a_b": "a_b_3",
        "!": "feature",
        "größe²": "größe",
    }


def test_criteos_layout_goes_by_its_names() -> None:
    columns: dict[str, Any] = dict.fromkeys([*CRITEO_DENSE, *CRITEO_FEATURES], [None] * ROWS)
    found = drafted({**columns, "I2": [-1, 5] * 50, "row": list(range(ROWS))})
    assert found.kind == "tabular"  # there are other columns
    assert [column.column for column in found.dense] == list(CRITEO_DENSE)
    assert {column.transform for column in found.dense} == {"log1p"}
    assert [feature.name for feature in found.features] == list(CRITEO_FEATURES)
    assert [column.column for column in found.left_out] == ["colour", "row"]
