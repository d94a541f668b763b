"""A plan's prediction against counts by hand."""

from dataclasses import replace

import pytest

from dlrmx.plan.cost import predict
from dlrmx.plan.memory import HEAP_TIMES, num_parameters
from dlrmx.plan.shards import Plan, Strip, TablePlan
from dlrmx.plan.style import NEO, OURS, style_of
from dlrmx.plan.topology import KINDS
from plan_recipes import plan_recipe, processors

HEAP = HEAP_TIMES["cpu"]
MIXED = Plan(
    3,
    {
        "a": TablePlan(101, 16, "fp32", "row_wise", strips=(Strip(0, 101, 0, 16, 0, 3),)),
        "b": TablePlan(50, 12, "fp32", "column_wise", strips=(Strip(0, 50, 0, 4, 2, 1), Strip(0, 50, 4, 12, 1, 1))),
        "c": TablePlan(7, 16, "fp32", "data_parallel"),
    },
    ranks_per_node=3,
)
RECIPE = plan_recipe({"a": 101, "b": {"rows": 50, "dim": 12}, "c": 7}, pooling={"b": 5.0}, batch=9)


def test_weights_and_state_of_each_rank_are_exact() -> None:
    memory = predict(MIXED, RECIPE, processors(3, 1 << 30)).memory
    assert [rank.weights_bytes for rank in memory] == [
        33 * 64 + 7 * 64,
        34 * 64 + 50 * 32 + 7 * 64,
        34 * 64 + 50 * 16 + 7 * 64,
    ]
    assert [rank.state_bytes for rank in memory] == [33 * 4 + 28, 34 * 4 + 200 + 28, 34 * 4 + 200 + 28]
    assert len({rank.dense_bytes for rank in memory}) == 1
    assert {rank.host_bytes for rank in memory} == {0}


def test_buffers_are_those_of_the_busiest_moment() -> None:
    """A one-hot table of 8 columns on one rank of two, 6 bags. Its rank: sums, message, and each id seven times. Each
    owner of 3 bags: the message sent, what the model took and its gradient, and twice an id, a length and a number. A
    processor's heap grows to more than is in use. What goes to the other rank, half of it both ways, lies in memory of
    its own, which both see, twice."""
    plan = Plan(2, {"a": TablePlan(10, 8, "fp32", "table_wise", strips=(Strip(0, 10, 0, 8, 0, 1),))}, ranks_per_node=2)
    recipe = plan_recipe({"a": {"rows": 10, "dim": 8}}, batch=6)
    holder, other = (rank.exchange_bytes for rank in predict(plan, recipe, processors(2, 1 << 30)).memory)
    vector, owner = 8 * 4, 3 * (3 * 8 * 4 + 2 * (4 + 4 + 8))
    assert holder - other == pytest.approx(HEAP * 6 * (2 * vector + 7 * 4) + 6 * 2 * vector / 2 * 2, abs=2)
    assert other == pytest.approx(HEAP * owner + 3 * 2 * vector / 2 * 2, abs=2)


def test_only_touched_bags_travel() -> None:
    """Of 9 one-hot bags each moves one vector of a, and each slice of b its part of 9 vectors; two of three ranks are
    another's. Ids: one of a and five of b for each slice, with a length where there may be several."""
    found = predict(MIXED, RECIPE, processors(3, 1 << 30))
    sent = {(traffic.link, traffic.cargo): traffic.num_bytes for traffic in found.traffic}
    vectors = 9 * 16 + 9 * 12
    assert sent["up", "vectors"] == pytest.approx(vectors * 4 * 2 / 3)
    assert sent["up", "gradients"] == pytest.approx(vectors * 4 * 2 / 3)
    assert sent["up", "ids"] == pytest.approx((9 + 2 * (9 * 5 + 9)) * 4 * 2 / 3)
    assert all(num_bytes == 0 for (link, _), num_bytes in sent.items() if link != "up")


def test_a_bag_touches_each_row_range_with_its_chance() -> None:
    """A bag of 5 misses a third of the rows with probability (2/3)^5."""
    plan = Plan(3, {"a": TablePlan(99, 16, "fp32", "row_wise", strips=(Strip(0, 99, 0, 16, 0, 3),))}, ranks_per_node=3)
    found = predict(plan, plan_recipe({"a": 99}, pooling={"a": 5.0}, batch=6), processors(3, 1 << 30))
    sent = {(traffic.link, traffic.cargo): traffic.num_bytes for traffic in found.traffic}
    assert sent["up", "vectors"] == pytest.approx(6 * 3 * (1 - (2 / 3) ** 5) * 16 * 4 * 2 / 3)


def test_the_step_is_the_sum_of_its_slowest_stretches() -> None:
    found = predict(MIXED, RECIPE, processors(3, 1 << 30))
    assert found.step_s == pytest.approx(sum(vars(found.slowest).values()))
    assert found.samples_per_s == pytest.approx(9 / found.step_s)
    for stretch in (("update", "ids"), ("lookup", "vectors"), ("gradients",), ("all_reduce",)):
        slowest = max(sum(getattr(rank, stage) for stage in stretch) for rank in found.ranks)
        assert sum(getattr(found.slowest, stage) for stage in stretch) == pytest.approx(slowest)


def test_an_update_costs_the_same_however_vectors_travel() -> None:
    """Of a one-hot table cut over two ranks each reads its own ids' gradients, also where those of all bags came."""
    plan = Plan(2, {"a": TablePlan(10, 16, "fp32", "row_wise", strips=(Strip(0, 10, 0, 16, 0, 2),))}, ranks_per_node=2)
    recipe, ranks = plan_recipe({"a": 10}, batch=600), processors(2, 1 << 30)
    ours, paper = (predict(plan, recipe, ranks, style=style).ranks for style in (OURS, NEO))
    assert [rank.update for rank in paper] == pytest.approx([rank.update for rank in ours])


def test_a_world_of_one_exchanges_nothing() -> None:
    plan = Plan(1, {"a": TablePlan(10, 16, "fp32", "table_wise", strips=(Strip(0, 10, 0, 16, 0, 1),))})
    found = predict(plan, plan_recipe({"a": 10}), processors(1, 1 << 30))
    assert found.slowest.all_reduce == 0
    assert all(traffic.num_bytes == 0 for traffic in found.traffic)


def test_formats_on_the_wire_make_the_exchange_faster() -> None:
    narrow = RECIPE.model_copy(
        update={"exchange": RECIPE.exchange.model_copy(update={"forward": "fp16", "backward": "int8", "dense": "bf16"})}
    )
    ranks = processors(3, 1 << 30)
    wide, half = (
        {(one.link, one.cargo): one.num_bytes for one in predict(MIXED, recipe, ranks).traffic}
        for recipe in (RECIPE, narrow)
    )
    assert half["up", "vectors"] == wide["up", "vectors"] / 2
    # Of each of 9 bags a vector of 16 numbers, one of 4 and one of 8; to two of three ranks.
    assert half["up", "gradients"] == pytest.approx(9 * (16 + 4 + 8 + 3 * 4) * 2 / 3)
    assert half["up", "all_reduce"] == wide["up", "all_reduce"] / 2
    assert half["up", "ids"] == wide["up", "ids"]
    for way, of_vectors in (("int4", 8 + 2 + 4 + 3 * 2), ("sign", 2 + 1 + 1 + 3 * 1)):
        fewest = RECIPE.model_copy(update={"exchange": RECIPE.exchange.model_copy(update={"forward": way})})
        told = {(one.link, one.cargo): one.num_bytes for one in predict(MIXED, fewest, ranks).traffic}
        assert told["up", "vectors"] == pytest.approx(9 * of_vectors * 2 / 3)


def test_the_papers_exchange_sends_every_bag_from_every_rank() -> None:
    """Reduce-scatter: three row ranges send 9 vectors each; overlapped, ids cost nothing."""
    plan = Plan(3, {"a": TablePlan(99, 16, "fp32", "row_wise", strips=(Strip(0, 99, 0, 16, 0, 3),))}, ranks_per_node=3)
    recipe = plan_recipe({"a": 99}, batch=9)
    found = predict(plan, recipe, processors(3, 1 << 30), style=NEO)
    sent = {(one.link, one.cargo): one.num_bytes for one in found.traffic}
    assert sent["up", "vectors"] == pytest.approx(3 * 9 * 16 * 2 * 2 / 3)
    assert found.exposed.ids == 0
    assert found.step_s < sum(vars(found.slowest).values())


def test_the_papers_exchange_holds_one_message_and_one_sum_of_a_bag() -> None:
    """Three row ranges, 9 bags of 16 columns, an id each, on a device. A holder has all bags' gradients in bf16 and in
    fp32, and each of its 3 ids seven times. An owner of 3 bags has one sum of each, of all ranges, its gradient, and
    the bf16 message; from each range a length and a number, twice, and of each id two copies."""
    plan = Plan(3, {"a": TablePlan(99, 16, "fp32", "row_wise", strips=(Strip(0, 99, 0, 16, 0, 3),))}, ranks_per_node=3)
    recipe, node = plan_recipe({"a": 99}, batch=9), replace(KINDS["dgx_a100_80"], world=3)
    holder, owner, routed = 9 * 16 * (4 + 2), 3 * 16 * (4 + 4 + 2), 3 * 2 * 4 + 3 * 3 * 2 * (4 + 8)
    for style, wide in ((NEO, 0), (replace(NEO, message_bytes=4), 2)):
        for rank in predict(plan, recipe, node, style=style).memory:
            more = wide * (9 * 16 + 3 * 16)
            assert rank.exchange_bytes == pytest.approx(holder + owner + routed + 3 * 7 * 4 + more, abs=2)


def test_thresholds_let_a_part_travel_with_its_places() -> None:
    """Of 95% not sent: 5% of the numbers in fp32 and a byte each; of gradients 5% of those. Dense sums: three ranks'
    entries at most, and a bit for each number; of eleven parameters with 693 numbers only one has enough of them, 384.
    Every fifth step counts of 256 bins, four times, 8 bytes each, are added up for each parameter, and for both tables
    that are cut."""
    each = {"sparsity": 0.95, "every": 5}
    thresholds = {"forward": each, "backward": each, "dense": each}
    exchange = type(RECIPE.exchange).model_validate({"threshold": thresholds})
    ranks, part = processors(3, 1 << 30), RECIPE.model_copy(update={"exchange": exchange})
    whole, less = predict(MIXED, RECIPE, ranks), predict(MIXED, part, ranks)
    all_sent, sent = ({(one.link, one.cargo): one.num_bytes for one in found.traffic} for found in (whole, less))
    ring, found_bytes = 2 * 2 / 3 * 3, 4 * 256 * 8 / 5  # of all ranks; of a threshold
    of_entry = 0.05 * 4 + 0.05
    searched = ring * 2 * found_bytes
    assert sent["up", "vectors"] == pytest.approx(all_sent["up", "vectors"] * of_entry / 4 + searched)
    assert sent["up", "gradients"] == pytest.approx(all_sent["up", "gradients"] * 0.05 * of_entry / 4 + searched)
    copied = 4 * 7 * 16  # the gradient of a replica goes whole
    assert all_sent["up", "all_reduce"] == pytest.approx(ring * (copied + 4 * 693), rel=1e-3)
    there, back = ((309 + part * 384) * 4 + 693 / 8 for part in (0.05, 0.15))
    wanted = ring * (copied + (there + back) / 2 + 11 * found_bytes)
    assert sent["up", "all_reduce"] == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(
    ("threshold", "forward", "backward"),
    [
        ({"forward": 0.9}, 0.1 * 2 + 0.1, 0.1 * 2),
        ({"backward": 0.9}, 2, 0.1 * 2 + 0.1),
        ({"forward": 0.9, "backward": 0.5}, 0.1 * 2 + 0.1, 0.1 * (0.5 * 2 + 1 / 8)),
    ],
)
def test_gradients_travel_among_the_entries_that_came(
    threshold: dict[str, float], forward: float, backward: float
) -> None:
    """Bytes of a number in fp16; which of all numbers came forward both ends know."""
    asked = {name: {"sparsity": sparsity} for name, sparsity in threshold.items()}
    exchange = type(RECIPE.exchange).model_validate({"forward": "fp16", "backward": "fp16", "threshold": asked})
    style = style_of(RECIPE.model_copy(update={"exchange": exchange}))
    assert (style.forward_bytes, style.backward_bytes) == pytest.approx((forward, backward))


def test_thresholds_and_narrow_formats_take_memory_of_their_own() -> None:
    """Of a number: sums and a message in fp32; in fp16 the message is half, and what it becomes is beside it. Where a
    threshold is found, five int64 and a copy; dense: what is held back, and five int64 of each parameter. Half of what
    travels lies in shared memory, too: of a tenth of the numbers 4 bytes and a place of one; of gradients among those
    no place. Of each number that travelled forward an int64 is kept."""
    plan = Plan(2, {"a": TablePlan(10, 8, "fp32", "table_wise", strips=(Strip(0, 10, 0, 8, 0, 1),))}, ranks_per_node=2)
    recipe = plan_recipe({"a": {"rows": 10, "dim": 8}}, batch=6)

    def memory(**exchange: object) -> tuple[int, int, int]:
        asked = recipe.model_copy(update={"exchange": type(recipe.exchange).model_validate(exchange)})
        holder, other = predict(plan, asked, processors(2, 1 << 30)).memory
        return holder.exchange_bytes - other.exchange_bytes, other.exchange_bytes, other.dense_bytes

    held, owned, dense = memory()
    numbers, parameters = 6 * 8, num_parameters(recipe)
    narrow, narrow_owned, _ = memory(backward="fp16")
    shared, sparse, among = 2 / 2 * numbers, 0.1 * (4 + 1), 0.1 * 4
    assert narrow - held == pytest.approx(HEAP * numbers * (4 + 2 + 4 - 8) + shared * (2 - 4), abs=2)
    assert narrow_owned - owned == pytest.approx(HEAP * numbers / 2 * (2 - 4) + shared / 2 * (2 - 4), abs=2)
    found, _, _ = memory(threshold={"forward": {"sparsity": 0.9}})
    assert found - held == pytest.approx(HEAP * numbers * (4 + 44 - 8) + shared * (sparse + among - 8), abs=2)
    _, found_owned, _ = memory(threshold={"backward": {"sparsity": 0.9}})
    wanted = HEAP * numbers / 2 * (4 + 8 + 44 - 4) + shared / 2 * (sparse - 4)
    assert found_owned - owned == pytest.approx(wanted, abs=2)
    assert memory(threshold={"dense": {"sparsity": 0.9}})[2] - dense == parameters * 4 * 11
