"""Who adds: one rank of each node, of the owner's local index; bytes by link, by hand."""

import numpy as np
import pytest
import torch

from dlrmx.data.batches import Bags, Batch
from dlrmx.parallel.hops import all_ranks, own_node
from dlrmx.parallel.layout import Layout, make_layout
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Plan, Route, Strip, TablePlan
from dlrmx.recipe.schema import Recipe
from dlrmx.train.build import build_parts
from dlrmx.train.step import Slice, train_step
from ranks import run_ranks

ROWS, DIM, BATCH, BAG = 4_000, 16, 64, 40


def recipe() -> Recipe:
    return Recipe.model_validate(
        {
            "dlrmx": 1,
            "name": "long-bags",
            "data": {"kind": "synthetic", "rows": 1000},
            "features": {"t": {}},
            "tables": {"t": {"rows": ROWS, "dim": DIM}},
            "model": {"kind": "dlrm", "bottom": [DIM], "top": [1]},
            "optimizer": {"dense": {"kind": "sgd", "lr": 0.01}, "sparse": {"kind": "sgd", "lr": 0.01}},
            "train": {"batch": 4 * BATCH, "stop": {"steps": 10}},
        }
    )


def row_wise(world: int, ranks_per_node: int, route: Route) -> Plan:
    table = TablePlan(ROWS, DIM, "fp32", "row_wise", route, (Strip(0, ROWS, 0, DIM, 0, world),))
    return Plan(world, {"t": table}, ranks_per_node)


def layout(world: int, ranks_per_node: int, route: Route = "by_node") -> Layout:
    return make_layout(row_wise(world, ranks_per_node, route), recipe().features)


def test_the_adder_has_the_owners_local_index() -> None:
    sent_to = {owner: all_ranks(layout(16, 8), owner).courses[0].targets for owner in (0, 3, 11)}
    assert sent_to == {0: (0,) * 8 + (8,) * 8, 3: (3,) * 8 + (11,) * 8, 11: (3,) * 8 + (11,) * 8}


def test_on_a_smaller_last_node_the_ranks_take_turns() -> None:
    """12 ranks on nodes of 8: the last node has ranks 8 to 11."""
    adders = [all_ranks(layout(12, 8), owner).courses[0].targets[-1] for owner in range(12)]
    assert adders == [8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11]


def test_a_node_holds_a_stretch_of_rows_and_its_ranks_parts_of_it() -> None:
    first = all_ranks(layout(12, 8), 5)
    assert first.courses[0].offsets == (0,) * 8 + (8 * ROWS // 12,) * 4
    second = own_node(layout(12, 8), 9)
    assert second is not None
    assert second.members == (8, 9, 10, 11)
    course = second.courses[0]
    assert course.shift == 8 * ROWS // 12
    assert course.targets[8:] == (0, 1, 2, 3)
    assert course.offsets[8:] == tuple(part * ROWS // 12 for part in range(8, 12))


def test_flat_tables_take_one_hop() -> None:
    assert own_node(layout(16, 8, "flat"), 0) is None
    assert all_ranks(layout(16, 8, "flat"), 0).courses[0].targets == tuple(range(16))


def test_a_node_without_rows_is_sent_nothing() -> None:
    plan = Plan(4, {"t": TablePlan(ROWS, DIM, "fp32", "table_row_wise", "by_node", (Strip(0, ROWS, 0, DIM, 2, 2),))}, 2)
    made = make_layout(plan, recipe().features)
    assert all_ranks(made, 1).served == ((), (), (0,), (0,))
    assert all_ranks(made, 1).courses[0].targets == (3, 3)


def traffic(route: Route) -> dict[tuple[str, str], int]:
    """Bytes of one step by kind and link, bags of BAG different rows, on 2 x 2 ranks."""
    wire = Wire(2)
    parts = build_parts(recipe(), row_wise(4, 2, route), wire=wire, dense_dim=2, device=torch.device("cpu"))
    parts.embeddings.initialise(0)
    rng = np.random.default_rng(wire.rank)
    ids = np.concatenate([rng.permutation(ROWS)[:BAG] for _ in range(BATCH)])
    bags = {"t": Bags(ids, np.full(BATCH, BAG, np.int32), None)}
    batch = Batch(np.zeros(BATCH, np.float32), np.zeros((BATCH, 2), np.float32), bags)
    wire.take_traffic()
    train_step(parts, Slice(batch, 4 * BATCH, ""), step=0, rate=1.0)
    return {(kind, link): count for (kind, link), count in wire.take_traffic().items()}


@pytest.fixture(scope="module")
def sent() -> dict[str, list[dict[tuple[str, str], int]]]:
    ranks = run_ranks(4, both_routes)
    return {route: [rank[route] for rank in ranks] for route in ("flat", "by_node")}


def both_routes() -> dict[str, dict[tuple[str, str], int]]:
    return {"flat": traffic("flat"), "by_node": traffic("by_node")}


def test_a_long_bag_comes_back_once_from_each_node(sent: dict[str, list[dict[tuple[str, str], int]]]) -> None:
    vector = 4 * DIM
    for rank in range(4):
        flat, by_node = sent["flat"][rank], sent["by_node"][rank]
        # Each bag touches all four ranks. Flat: to the owners on the other node, two of BATCH bags.
        assert flat["vectors", "out"] == 2 * BATCH * vector
        assert flat["vectors", "up"] == BATCH * vector
        # By node: to the one owner on the other node that this rank adds for; and inside, of both owners' bags that the
        # other rank adds up.
        assert by_node["vectors", "out"] == BATCH * vector
        assert by_node["vectors", "up"] == 2 * BATCH * vector
        assert by_node["gradients", "out"] == BATCH * vector + 2 * 4  # and a flag to each of the two ranks there
        # Ids cross once, with one length a bag and node; only then are they dealt out.
        ids = sum(sent["by_node"][r]["ids", "out"] for r in range(4))
        assert ids == sum(sent["flat"][r]["ids", "out"] for r in range(4)) - 4 * BATCH * 4
