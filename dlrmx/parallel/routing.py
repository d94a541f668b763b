"""Routing: which id of this rank's samples goes to which rank, as which row of which fused table.

Only touched bags travel: a rank gets the lengths and ids of the bags of which it holds a row, and this side keeps
their positions, so that vectors can be added where they belong without any permutation.

Legend: B samples of this rank, S slots, W ranks, n looked-up ids over all slots, m touched (bag, rectangle) pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dlrmx.data.batches import Bags
from dlrmx.parallel.layout import Layout


@dataclass(frozen=True)
class Routed:
    """One batch's ids and touched bags, in (rank, slot, bag) order."""

    batch: int  # B
    ids: torch.Tensor  # (n,) int32 rows of the receiver's fused table
    weights: torch.Tensor  # (n',) fp32: weights of the ids of weighted slots
    lengths: torch.Tensor  # (m,) int32 ids of each touched bag
    positions: torch.Tensor  # (m,) int64 slot * B + sample
    bags: torch.Tensor  # (W, S) int64 touched bags, on the CPU
    lookups: torch.Tensor  # (W, S) int64 ids, on the CPU


class Router:
    """Routes batches by a layout. Holds per-slot constants as tensors, so that a batch takes few operations."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self._layout, self._device = layout, device
        slots = layout.slots
        self._rows = self._column([slot.strip.row_end for slot in slots])
        self._parts = self._column([slot.strip.num_ranks for slot in slots])
        self._first_rank = self._column([slot.strip.first_rank for slot in slots])
        self._base_start = self._column(np.cumsum([0] + [len(slot.bases) for slot in slots])[:-1])
        self._bases = self._column([base for slot in slots for base in slot.bases])
        self._weighted = torch.tensor([slot.weighted for slot in slots], dtype=torch.bool, device=device)
        self._any_weighted = any(slot.weighted for slot in slots)

    def _column(self, values: Sequence[int] | np.ndarray) -> torch.Tensor:
        return torch.tensor(np.asarray(values, dtype=np.int64), device=self._device)

    def route(self, bags: Sequence[Bags], batch: int) -> Routed:
        """Route the bags of all features (recipe order) of `batch` samples."""
        of_slot = [bags[slot.feature] for slot in self._layout.slots]
        ids = self._stack([bag.ids for bag in of_slot], np.int64)
        sizes = self._column([len(bag.ids) for bag in of_slot])
        slot = torch.repeat_interleave(torch.arange(len(of_slot), device=self._device), sizes, output_size=len(ids))
        lengths = self._stack([bag.lengths for bag in of_slot], np.int32)
        bag = torch.repeat_interleave(torch.arange(len(lengths), device=self._device), lengths, output_size=len(ids))
        part = ((ids + 1) * self._parts[slot] - 1) // self._rows[slot]
        start = part * self._rows[slot] // self._parts[slot]
        local = (ids - start + self._bases[self._base_start[slot] + part]).to(torch.int32)
        rank = self._first_rank[slot] + part

        order = torch.sort(rank, stable=True).indices
        bag, rank, slot = bag[order], rank[order], slot[order]
        first = torch.ones(len(bag), dtype=torch.bool, device=self._device)
        first[1:] = (bag[1:] != bag[:-1]) | (rank[1:] != rank[:-1])
        starts = first.nonzero().view(-1)
        ends = torch.cat([starts[1:], starts.new_tensor([len(bag)] if len(bag) else [])])
        return Routed(
            batch=batch,
            ids=local[order],
            weights=self._route_weights(of_slot, order, slot),
            lengths=(ends - starts).to(torch.int32),
            positions=bag[starts],
            bags=self._count(rank[starts], slot[starts]),
            lookups=self._count(rank, slot),
        )

    def _route_weights(self, of_slot: Sequence[Bags], order: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        if not self._any_weighted:
            return torch.empty(0, device=self._device)
        given = [np.ones(len(bag.ids), np.float32) if bag.weights is None else bag.weights for bag in of_slot]
        return self._stack(given, np.float32)[order][self._weighted[slot]]

    def _count(self, rank: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        world, slots = self._layout.world, len(self._layout.slots)
        return torch.bincount(rank * slots + slot, minlength=world * slots).view(world, slots).cpu()

    def _stack(self, parts: Sequence[np.ndarray], dtype: type) -> torch.Tensor:
        stacked: np.ndarray = np.concatenate([np.empty(0, dtype), *parts])
        return torch.from_numpy(stacked).to(self._device)
