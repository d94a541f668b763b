"""Where rectangles lie in the fused tables, by hand."""

from dlrmx.parallel.layout import make_layout
from dlrmx.plan.shards import Plan, Strip, TablePlan
from sharding_cases import FEATURES, TABLES, make_plan, make_recipe


def two_tables(world: int) -> Plan:
    """`a` (10 rows) row-wise over all ranks, `b` (3 rows) row-wise too; both 4 wide."""
    return Plan(
        world,
        {
            "a": TablePlan(10, 4, "fp32", "row_wise", strips=(Strip(0, 10, 0, 4, 0, world),)),
            "b": TablePlan(3, 4, "fp32", "row_wise", strips=(Strip(0, 3, 0, 4, 0, world),)),
        },
    )


def test_rectangles_lie_one_under_the_other() -> None:
    features = {name: feature for name, feature in make_recipe().features.items() if name in "ab"}
    features = {name: feature.model_copy(update={"table": name}) for name, feature in features.items()}
    layout = make_layout(two_tables(4), features)
    assert layout.fused == ((4, "fp32", "hbm", "flat"),)
    # a is cut at 0, 2, 5, 7, 10; b at 0, 0, 1, 2, 3: rank 0 holds none of it.
    assert [layout.fused_rows(rank, 0) for rank in range(4)] == [2, 4, 3, 4]
    a, b = layout.slots
    assert a.bases == (0, 0, 0, 0)
    assert b.bases == (0, 3, 2, 3)
    assert [layout.holders(slot) for slot in (0, 1)] == [[0, 1, 2, 3], [1, 2, 3]]


def test_slots_are_ordered_by_fused_table_and_keep_every_column() -> None:
    recipe = make_recipe()
    for world in (1, 2, 5):
        layout = make_layout(make_plan("column_wise", world), recipe.features)
        assert [slot.fused for slot in layout.slots] == sorted(slot.fused for slot in layout.slots)
        for index, feature in enumerate(recipe.features.values()):
            spans = sorted((s.strip.col_start, s.strip.col_end) for s in layout.slots if s.feature == index)
            assert spans[0][0] == 0
            assert spans[-1][1] == TABLES[feature.table][1]
            assert all(left[1] == right[0] for left, right in zip(spans, spans[1:], strict=False))


def test_replicated_tables_are_left_out() -> None:
    layout = make_layout(make_plan("data_parallel", 3), make_recipe().features)
    assert layout.slots == ()
    assert layout.fused == ()


def test_every_row_of_every_table_is_placed_once() -> None:
    for world in (1, 3, 8):
        layout = make_layout(make_plan("row_wise", world), make_recipe().features)
        rows = dict.fromkeys(TABLES, 0)
        for rank in layout.placed:
            for group in rank:
                for placed in group:
                    rows[placed.rectangle.table] += placed.rectangle.rows
        assert rows == {name: count for name, (count, _) in TABLES.items()}
        assert len(layout.slots) == len(FEATURES)
