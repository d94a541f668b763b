"""The stream of training rows: which rows of the split make up the global batch at a position, and this rank's part.

A position is (step, epoch, row): it says what comes next, and all that follows is a pure function of it and of the
order's seed, whatever the number of ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch

from dlrmx.data.batches import Batch, Split
from dlrmx.data.order import shuffled_at
from dlrmx.errors import InputError
from dlrmx.plan.shards import cut
from dlrmx.recipe.schema import Epochs, Recipe
from dlrmx.train.step import Slice

# So many labels, dense values and ids of shuffled batches are gathered at a time, 16,384 rows of Criteo's: in small
# batches a sixth of the time is for the calls.
TOGETHER_VALUES = 40 * 16_384


@dataclass(frozen=True)
class Position:
    """What is trained on next: `step` steps are done, `row` rows of `epoch` are used up."""

    step: int = 0
    epoch: int = 0
    row: int = 0


@dataclass(frozen=True)
class _Dealt:
    """This rank's positions [first, last) in the order of an epoch, of a global batch of `size` rows."""

    epoch: int
    first: int
    last: int
    size: int


class Stream:
    """The training split in the order of a seed, dealt to `world` ranks."""

    def __init__(self, split: Split, recipe: Recipe, *, order_seed: int, rank: int, world: int) -> None:
        self._split, self._data, self._batch = split, recipe.data, recipe.train.batch
        self._seed, self._rank, self._world = order_seed, rank, world
        self.epoch_rows = split.rows if recipe.data.tail == "keep" else split.rows // self._batch * self._batch
        if self.epoch_rows == 0:
            raise InputError(
                f"the training split has {split.rows} rows: no batch of {self._batch} can be made",
                hint="lower train.batch, lower data.split.validation and .test, or set data.tail: keep",
            )
        steps = -(-self.epoch_rows // self._batch)
        stop = recipe.train.stop
        self.total_steps = stop.epochs * steps if isinstance(stop, Epochs) else stop.steps

    def slice_at(self, position: Position) -> Slice:
        """This rank's rows of the global batch at `position`; an epoch's last batch may be smaller."""
        return next(self._read([position]))

    def slices(self, position: Position) -> Iterator[Slice]:
        """This rank's rows of all global batches from `position` to the end of training."""
        rows = TOGETHER_VALUES / self._split.values_per_row * self._world
        together = max(int(rows // self._batch), 1)
        while position.step < self.total_steps:
            positions: list[Position] = []
            while position.step < self.total_steps and len(positions) < together:
                positions.append(position)
                position = self.after(position)
            yield from self._read(positions)

    def _read(self, positions: list[Position]) -> Iterator[Slice]:
        dealt = [self._dealt(position) for position in positions]
        for one, batch in zip(dealt, self._batches(dealt), strict=True):
            yield Slice(batch, one.size, f"epoch {one.epoch}, rows {one.first:,} to {one.last:,}")

    def _dealt(self, position: Position) -> "_Dealt":
        size = min(self._batch, self.epoch_rows - position.row)
        first, last = (position.row + cut(size, self._world, rank) for rank in (self._rank, self._rank + 1))
        return _Dealt(position.epoch, first, last, size)

    def _batches(self, dealt: "list[_Dealt]") -> Iterator[Batch]:
        if self._data.order == "as_stored":
            return (self._split.between(one.first, one.last) for one in dealt)
        rows = self._split.rows
        shuffled = [
            shuffled_at(
                np.concatenate([np.arange(one.first, one.last) for one in some]), rows, seed=self._seed, epoch=epoch
            )
            for epoch, some in groupby(dealt, lambda one: one.epoch)
        ]
        return self._split.take_divided(np.concatenate(shuffled), [one.last - one.first for one in dealt])

    def after(self, position: Position) -> Position:
        """The position after the batch at `position`."""
        row = position.row + self._batch
        if row >= self.epoch_rows:
            return Position(position.step + 1, position.epoch + 1, 0)
        return Position(position.step + 1, position.epoch, row)


def pinned(slices: Iterator[Slice], device: torch.device) -> Iterator[Slice]:
    """For a CUDA device, dense columns and labels in page-locked memory, so that copying them waits for nothing."""
    return (_pin(rows, device) for rows in slices) if device.type == "cuda" else slices


def _pin(rows: Slice, device: torch.device) -> Slice:
    batch = rows.batch
    with torch.cuda.device(device):  # a thread starts out on device 0
        labels, dense = (torch.from_numpy(column).pin_memory().numpy() for column in (batch.labels, batch.dense))
    return replace(rows, batch=replace(batch, labels=labels, dense=dense))
