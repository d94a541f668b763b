"""Routing against a slow loop over samples."""

import numpy as np
import pytest
import torch

from dlrmx.data.batches import Bags
from dlrmx.parallel.hops import all_ranks
from dlrmx.parallel.layout import Layout, make_layout
from dlrmx.parallel.routing import Router
from sharding_cases import KINDS, TABLES, make_batch, make_plan, make_recipe


def slow_route(layout: Layout, bags: list[Bags], batch: int) -> list[tuple[int, int, int, list[int]]]:
    """(rank, slot, sample, fused rows) of every touched bag, in that order, by looking at one id after the other."""
    touched: dict[tuple[int, int, int], list[int]] = {}
    for number, slot in enumerate(layout.slots):
        bag, strip, at = bags[slot.feature], slot.strip, 0
        for sample in range(batch):
            for row in bag.ids[at : at + bag.lengths[sample]].tolist():
                if not strip.row_start <= row < strip.row_end:
                    continue
                cuts = strip.row_cuts()
                part = next(k for k in range(strip.num_ranks) if cuts[k] <= row < cuts[k + 1])
                key = (strip.first_rank + part, number, sample)
                touched.setdefault(key, []).append(row - cuts[part] + slot.bases[part])
            at += int(bag.lengths[sample])
    return [(*key, touched[key]) for key in sorted(touched)]


@pytest.mark.parametrize("kind", [*KINDS, "bands", "table_row_wise", "grid"])
@pytest.mark.parametrize("world", [1, 2, 5, 8])
def test_routes_as_a_loop_over_samples_does(world: int, kind: str) -> None:
    recipe = make_recipe()
    batch = make_batch(0, rows=31)
    layout = make_layout(make_plan(kind, world), recipe.features)
    bags = list(batch.bags.values())
    routed = Router(layout, all_ranks(layout, 0), torch.device("cpu")).route(bags, 31)
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
    routed = Router(layout, all_ranks(layout, 0), torch.device("cpu")).route(list(batch.bags.values()), 0)
    assert routed.ids.numel() == routed.lengths.numel() == int(routed.bags.sum()) == 0


def test_the_cases_have_ids_everywhere() -> None:
    batch = make_batch(0)
    for name, feature in make_recipe().features.items():
        assert batch.bags[name].ids.max() < TABLES[feature.table][0]
    assert min(int(bags.lengths.min()) for bags in batch.bags.values()) == 0
