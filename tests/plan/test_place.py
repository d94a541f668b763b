"""Placement: what overflows and by how much, and slices that must share a rank."""

from dlrmx.plan.memory import rectangle_memory, sender_memory
from dlrmx.plan.options import Ask, enumerate_demands
from dlrmx.plan.place import Overflow, place
from dlrmx.plan.shards import Rectangle
from plan_recipes import plan_recipe


def test_the_overflow_says_what_was_needed_and_what_was_free() -> None:
    recipe = plan_recipe({"a": 1000})
    ask = Ask(recipe, world=2, memory_bytes=0)
    (demand,) = enumerate_demands(ask)
    table = demand.cut("table_wise", world=2)
    whole = Rectangle("a", 0, 1000, 0, 16, 0, "hbm")
    needed = rectangle_memory(whole, table, [1.0], batch=8, optimizer="rowwise_adagrad").total_bytes
    sending = sender_memory(table, [1.0], local_batch=4).total_bytes
    assert place([demand], [table], ask, free_bytes=needed + sending - 1) == Overflow(
        "a", "table_wise", needed, needed - 1
    )
    assert isinstance(place([demand], [table], ask, free_bytes=needed + sending), dict)


def test_slices_share_a_rank_where_the_others_are_full() -> None:
    """Table a fills rank 0 to the last byte: both slices of b go to rank 1, which they would not by choice."""
    constraints = {"a": {"types": ["table_wise"]}, "b": {"types": ["column_wise"], "slices": 2}}
    recipe = plan_recipe({"a": 1000, "b": 500}, sharding={"tables": constraints})
    ask = Ask(recipe, world=2, memory_bytes=0)
    demands = enumerate_demands(ask)
    cuts = [demands[0].cut("table_wise", world=2), demands[1].cut("column_wise", world=2)]
    whole = Rectangle("a", 0, 1000, 0, 16, 0, "hbm")
    filling = rectangle_memory(whole, cuts[0], [1.0], batch=8, optimizer="rowwise_adagrad").total_bytes
    sending = sum(sender_memory(table, [1.0], local_batch=4).total_bytes for table in cuts)
    roomy = place(demands, cuts, ask, free_bytes=1 << 30)
    tight = place(demands, cuts, ask, free_bytes=filling + sending)
    assert isinstance(roomy, dict)
    assert isinstance(tight, dict)
    assert [strip.first_rank for strip in roomy["b"].strips] == [1, 0]
    assert [strip.first_rank for strip in tight["b"].strips] == [1, 1]
