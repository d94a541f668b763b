"""Routing: which id goes to which member of a hop, as which row there.

Only touched bags travel: a member gets the lengths and ids of the bags of which it holds a row, and this side keeps
their positions, so that vectors can be added where they belong without any permutation.

Legend: B samples of this rank, S slots of the hop, M members of the hop, n ids over all slots, m touched (bag, member)
pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dlrmx.data.batches import Bags
from dlrmx.parallel.hops import Hop
from dlrmx.parallel.layout import Layout


@dataclass(frozen=True)
class Routed:
    """One batch's ids and touched bags, in (member, slot, bag) order."""

    ids: torch.Tensor  # (n,) int32 rows of the receiver's fused table or, for its node, of its node
    weights: torch.Tensor  # (n',) fp32: weights of the ids of weighted slots
    lengths: torch.Tensor  # (m,) int32 ids of each touched bag
    positions: torch.Tensor  # (m,) int64 number of the bag; bags are numbered by fused table
    bags: torch.Tensor  # (M, S) int64 touched bags, on the CPU
    lookups: torch.Tensor  # (M, S) int64 ids, on the CPU
    leaf_rows: tuple[int, ...]  # per fused table of the hop: its bags


@dataclass(frozen=True)
class Received:
    """The ids and lengths that came, of all fused tables of a hop; (member, slot, bag) order."""

    ids: torch.Tensor  # (n,) int32
    lengths: torch.Tensor  # (m,) int32
    weights: torch.Tensor | None  # (n,) fp32


class Router:
    """Routes batches over a hop. Holds per-slot constants as tensors, so that a batch takes few operations."""

    def __init__(self, layout: Layout, hop: Hop, device: torch.device) -> None:
        self._hop, self._device = hop, device
        self._slots = slots = [layout.slots[index] for index in hop.slots]
        self._first_row = self._column([slot.strip.row_start for slot in slots])
        self._rows = self._column([slot.strip.row_end - slot.strip.row_start for slot in slots])
        self._banded = any(slot.strip.row_start or slot.strip.row_end < slot.table_rows for slot in slots)
        self._parts = self._column([slot.strip.num_ranks for slot in slots])
        self._shift = self._column([course.shift for course in hop.courses])
        self._first_part = self._column(np.cumsum([0] + [len(course.targets) for course in hop.courses])[:-1])
        self._target = self._column([target for course in hop.courses for target in course.targets])
        self._offset = self._column([offset for course in hop.courses for offset in course.offsets])
        self._weighted = torch.tensor([slot.weighted for slot in slots], dtype=torch.bool, device=device)
        self._any_weighted = any(slot.weighted for slot in slots)
        # Where each slot goes whole to one member: that member, and what its row numbers lose.
        self._straight: list[tuple[int, int]] | None = None
        if not self._banded and all(len(course.targets) == 1 for course in hop.courses):
            self._straight = [(course.targets[0], course.offsets[0]) for course in hop.courses]
        place = {slot: at for at, slot in enumerate(hop.slots)}
        self._place = self._column([place.get(slot, -1) for slot in range(len(layout.slots))])
        self._fused = self._column([hop.fused.index(slot.fused) for slot in slots])

    def _column(self, values: Sequence[int] | np.ndarray) -> torch.Tensor:
        return torch.tensor(np.asarray(values, dtype=np.int64), device=self._device)

    def route(self, bags: Sequence[Bags], batch: int) -> Routed:
        """Route the bags of all features (recipe order) of `batch` samples. A bag's number is slot * B + sample."""
        of_slot = [bags[slot.feature] for slot in self._slots]
        if self._straight is not None:
            return self._route_straight(of_slot, batch, self._straight)
        ids = self._stack([bag.ids for bag in of_slot], np.int64)
        sizes = self._column([len(bag.ids) for bag in of_slot])
        slot = torch.repeat_interleave(torch.arange(len(of_slot), device=self._device), sizes, output_size=len(ids))
        lengths = self._stack([bag.lengths for bag in of_slot], np.int32)
        bag = torch.repeat_interleave(torch.arange(len(lengths), device=self._device), lengths, output_size=len(ids))
        weights = None
        if self._any_weighted:
            weights = self._stack([_weights(bag) for bag in of_slot], np.float32)
        leaf_rows = tuple((last - first) * batch for first, last in self._hop.ranges)
        if self._banded:  # a strip of some rows is asked for these alone
            row = ids - self._first_row[slot]
            kept = (row >= 0) & (row < self._rows[slot])
            ids, slot, bag, weights = ids[kept], slot[kept], bag[kept], None if weights is None else weights[kept]
        return self._spread(ids, weights, slot, bag, leaf_rows)

    def _route_straight(self, of_slot: Sequence[Bags], batch: int, straight: Sequence[tuple[int, int]]) -> Routed:
        """Nothing depends on single ids: those of a slot are copied in one piece, to where its member's lie."""
        order = sorted(range(len(of_slot)), key=lambda slot: straight[slot][0])
        ids, at = np.empty(sum(len(bag.ids) for bag in of_slot), np.int32), 0
        for slot in order:
            given = of_slot[slot].ids
            np.subtract(given, straight[slot][1], out=ids[at : at + len(given)], casting="same_kind")
            at += len(given)
        lengths = self._stack([of_slot[slot].lengths for slot in order], np.int32)
        positions = (self._column(order).unsqueeze(1) * batch + torch.arange(batch, device=self._device)).view(-1)
        if (touched := lengths > 0).logical_not().any():
            lengths, positions = lengths[touched], positions[touched]
        counts = np.zeros((2, len(self._hop.members), len(of_slot)), np.int64)
        for slot, bag in enumerate(of_slot):
            member = straight[slot][0]
            counts[:, member, slot] = np.count_nonzero(bag.lengths), len(bag.ids)
        weighted = [of_slot[slot] for slot in order if self._slots[slot].weighted]
        return Routed(
            ids=torch.from_numpy(ids).to(self._device),
            weights=self._stack([_weights(bag) for bag in weighted], np.float32),
            lengths=lengths,
            positions=positions,
            bags=torch.from_numpy(counts[0]),
            lookups=torch.from_numpy(counts[1]),
            leaf_rows=tuple((last - first) * batch for first, last in self._hop.ranges),
        )

    def pass_on(self, received: Received, bags: torch.Tensor, lookups: torch.Tensor) -> Routed:
        """Route what came over the hop before; bags and lookups count it (members of that hop, all slots).

        A bag's number is its place among those of its fused table that came.
        """
        slot_of_bag, slot_of_id = self._places(bags), self._places(lookups)
        here, wanted = slot_of_bag >= 0, slot_of_id >= 0
        lengths, ids = received.lengths[here], received.ids[wanted].to(torch.int64)
        weights = None if received.weights is None else received.weights[wanted]
        slot, fused = slot_of_id[wanted], self._fused[slot_of_bag[here]]
        number = torch.empty_like(fused)
        number[torch.sort(fused, stable=True).indices] = torch.arange(len(fused), device=self._device)
        bag = torch.repeat_interleave(number, lengths, output_size=len(ids))
        leaf_rows: list[int] = torch.bincount(fused, minlength=len(self._hop.fused)).tolist()
        return self._spread(ids + self._shift[slot], weights, slot, bag, tuple(leaf_rows))

    def _places(self, counts: torch.Tensor) -> torch.Tensor:
        """For each thing counted in (members, all slots): the place of its slot in this hop, -1 for none."""
        flat = counts.reshape(-1).to(self._device)
        return torch.repeat_interleave(self._place.repeat(len(counts)), flat, output_size=int(counts.sum()))

    def _spread(
        self,
        rows: torch.Tensor,
        weights: torch.Tensor | None,
        slot: torch.Tensor,
        bag: torch.Tensor,
        leaf_rows: tuple[int, ...],
    ) -> Routed:
        """Send row numbers (n,), of a slot and a bag each, to the members; the ids of a bag lie side by side."""
        row = rows - self._first_row[slot] if self._banded else rows
        part = ((row + 1) * self._parts[slot] - 1) // self._rows[slot] + self._first_part[slot]
        local = (rows - self._offset[part]).to(torch.int32)
        member = self._target[part]

        order = torch.sort(member * len(self._slots) + slot, stable=True).indices
        bag, member, slot = bag[order], member[order], slot[order]
        first = torch.ones(len(bag), dtype=torch.bool, device=self._device)
        first[1:] = (bag[1:] != bag[:-1]) | (member[1:] != member[:-1])
        starts = first.nonzero().view(-1)
        ends = torch.cat([starts[1:], starts.new_tensor([len(bag)] if len(bag) else [])])
        sent_weights = torch.empty(0, device=self._device)
        if weights is not None:
            sent_weights = weights[order][self._weighted[slot]]
        return Routed(
            ids=local[order],
            weights=sent_weights,
            lengths=(ends - starts).to(torch.int32),
            positions=bag[starts],
            bags=self._count(member[starts], slot[starts]),
            lookups=self._count(member, slot),
            leaf_rows=leaf_rows,
        )

    def _count(self, member: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        members, slots = len(self._hop.members), len(self._slots)
        return torch.bincount(member * slots + slot, minlength=members * slots).view(members, slots).cpu()

    def _stack(self, parts: Sequence[np.ndarray], dtype: type) -> torch.Tensor:
        stacked: np.ndarray = np.concatenate([np.empty(0, dtype), *parts])
        return torch.from_numpy(stacked).to(self._device)


def _weights(bag: Bags) -> np.ndarray:
    return np.ones(len(bag.ids), np.float32) if bag.weights is None else bag.weights
