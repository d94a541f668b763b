"""Strips, rectangles and the plan's JSON form."""

import pytest

from dlrmx.plan.shards import Plan, Rectangle, Strip, TablePlan, cut


def test_cut_deals_evenly() -> None:
    assert [cut(10, 4, part) for part in range(5)] == [0, 2, 5, 7, 10]


def test_a_strip_gives_one_rectangle_per_rank_that_holds_a_row() -> None:
    strip = Strip(10, 13, 4, 8, first_rank=2, num_ranks=5)
    assert strip.row_cuts() == [10, 10, 11, 11, 12, 13]
    assert list(strip.rectangles("t")) == [
        Rectangle("t", 10, 11, 4, 8, 3, "hbm"),
        Rectangle("t", 11, 12, 4, 8, 5, "hbm"),
        Rectangle("t", 12, 13, 4, 8, 6, "hbm"),
    ]


def plan(rows: int = 10) -> Plan:
    return Plan(
        2,
        {
            "a": TablePlan(rows, 8, "fp32", "row_wise", strips=(Strip(0, rows, 0, 8, 0, 2),)),
            "b": TablePlan(3, 4, "fp16", "data_parallel"),
        },
        notes=("a word",),
    )


def test_json_gives_the_plan_back() -> None:
    assert Plan.from_json(plan().to_json()) == plan()


def test_the_hash_is_that_of_the_content() -> None:
    assert plan().hash == Plan.from_json(plan().to_json()).hash
    assert plan().hash != plan(rows=11).hash


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="plan version 7; this dlrmx reads 2"):
        Plan.from_json(plan().to_json().replace('"version": 2', '"version": 7'))


@pytest.mark.parametrize("number", ["50.0", "true", '"50"', "null"])
def test_a_plan_counts_in_whole_numbers(number: str) -> None:
    text = Plan(2, {"a": TablePlan(50, 4, "fp32", "row_wise", strips=(Strip(0, 50, 0, 4, 0, 2),))}).to_json()
    for place in ('"rows": 50', "[0, 50"):
        assert place in text
        with pytest.raises(ValueError, match="no whole number"):
            Plan.from_json(text.replace(place, place.replace("50", number)))
