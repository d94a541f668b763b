"""Routing against a slow loop over samples, and the checks before it."""

import numpy as np
import pytest
import torch

from dlrmx.data.batches import Bags
from dlrmx.errors import InputError
from dlrmx.parallel.layout import Layout, make_layout
from dlrmx.parallel.routing import Router, check_bags
from sharding_cases import KINDS, TABLES, make_batch, make_plan, make_recipe


def slow_route(layout: Layout, bags: list[Bags], batch: int) -> list[tuple[int, int, int, list[int]]]:
    """(rank, slot, sample, fused rows) of every touched bag, in that order, by looking at one id after the other."""
    touched: dict[tuple[int, int, int], list[int]] = {}
    for number, slot in enumerate(layout.slots):
        bag, strip, at = bags[slot.feature], slot.strip, 0
        for sample in range(batch):
            for row in bag.ids[at : at + bag.lengths[sample]].tolist():
                cuts = strip.row_cuts()
                part = next(k for k in range(strip.num_ranks) if cuts[k] <= row < cuts[k + 1])
                key = (strip.first_rank + part, number, sample)
                touched.setdefault(key, []).append(row - cuts[part] + slot.bases[part])
            at += int(bag.lengths[sample])
    return [(*key, touched[key]) for key in sorted(touched)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [1, 2, 5, 8])
def test_routes_as_a_loop_over_samples_does(world: int, kind: str) -> None:
    recipe = make_recipe()
    batch = make_batch(0, rows=31)
    layout = make_layout(make_plan(kind, world), recipe.features)
    bags = list(batch.bags.values())
    routed = Router(layout, torch.device("cpu")).route(bags, 31)
    expected = slow_route(layout, bags, 31)
    assert routed.ids.tolist() == [row for _, _, _, rows in expected for row in rows]
    assert routed.lengths.tolist() == [len(rows) for _, _, _, rows in expected]
    assert routed.positions.tolist() == [slot * 31 + sample for _, slot, sample, _ in expected]
    counted = np.zeros((world, len(layout.slots)), int)
    for rank, slot, _, _ in expected:
        counted[rank, slot] += 1
    assert routed.bags.tolist() == counted.tolist()
    assert int(routed.lookups.sum()) == len(routed.ids)


def test_an_empty_slice_routes_to_nobody() -> None:
    layout = make_layout(make_plan("mix", 3), make_recipe().features)
    batch = make_batch(0, rows=0)
    routed = Router(layout, torch.device("cpu")).route(list(batch.bags.values()), 0)
    assert routed.ids.numel() == routed.lengths.numel() == int(routed.bags.sum()) == 0


ROWS = {"f": 10}


def bag(ids: list[int], lengths: list[int], weights: list[float] | None = None) -> dict[str, Bags]:
    given = None if weights is None else np.array(weights, np.float32)
    return {"f": Bags(np.array(ids, np.int64), np.array(lengths, np.int32), given)}


@pytest.mark.parametrize("wrong", [-1, 10, 2**31, 2**63 - 1, -(2**63)])
def test_an_id_outside_of_the_table_is_refused_by_name(wrong: int) -> None:
    with pytest.raises(InputError, match=rf"feature f: id {wrong} is outside of its table's 10 rows \(1 such"):
        check_bags(bag([0, wrong, 9], [1, 2]), ROWS, 2)


def test_the_first_and_last_row_are_in_range() -> None:
    check_bags(bag([0, 9], [1, 1]), ROWS, 2)


@pytest.mark.parametrize("lengths", [[1], [1, 1, 0], [2, 1], [3, -1], [0, 0]])
def test_lengths_that_do_not_fit_are_refused(lengths: list[int]) -> None:
    with pytest.raises(InputError, match="lengths that sum to"):
        check_bags(bag([1, 2], lengths), ROWS, 2)


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="feature f: 1 weights for 2 ids"):
        check_bags(bag([1, 2], [1, 1], [0.5]), ROWS, 2)


def test_the_cases_have_ids_everywhere() -> None:
    batch = make_batch(0)
    for name, feature in make_recipe().features.items():
        assert batch.bags[name].ids.max() < TABLES[feature.table][0]
    assert min(int(bags.lengths.min()) for bags in batch.bags.values()) == 0
