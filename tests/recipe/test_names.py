"""What a mistyped name was probably meant to be."""

import pytest

from dlrmx.recipe.names import MAX_LISTED, near_miss

KINDS = ("table_wise", "row_wise", "column_wise")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("table-wise", "did you mean table_wise?"),
        ("rowwise", "did you mean row_wise?"),
        ("column", "did you mean column_wise?"),  # too short to resemble it, but its beginning
        ("co", "there is: table_wise, row_wise, column_wise"),
        (7, "there is: table_wise, row_wise, column_wise"),
    ],
)
def test_the_one_it_resembles_else_all(name: object, hint: str) -> None:
    assert near_miss(name, KINDS) == hint


def test_of_many_the_first_are_listed() -> None:
    hint = near_miss("x", range(MAX_LISTED + 3))
    assert hint.startswith("there is: 0, 1, 2,")
    assert hint.endswith(" 11 and 3 more")


def test_where_nothing_is_known_there_is_no_hint() -> None:
    assert near_miss("x", []) == ""
