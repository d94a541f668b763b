"""Replicated tables (data_parallel): every rank holds all rows, looks up its own samples, and sums gradients with all.

A table's gradient is dense, (rows, dim), and joins the dense part's one all-reduce. The update then goes through the
same kernel as a sharded table's: each row is one bag whose gradient is the sum, so that the optimizer is the same to
the bit; a row with a zero gradient keeps its value.

Legend: B samples of this rank, D dim, F features of one fused table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dlrmx.data.batches import Bags
from dlrmx.parallel.fused import FusedTable
from dlrmx.plan.shards import Plan
from dlrmx.recipe.schema import Feature, SparseOptimizer


@dataclass(frozen=True)
class Stack:
    """Replicated tables of one (dim, dtype), one under the other, and the features that look them up."""

    table: FusedTable
    bases: dict[str, int]  # table name -> its first row
    rows: dict[str, int]  # table name -> its rows
    features: tuple[int, ...]  # recipe index of each feature
    feature_bases: tuple[int, ...]


@dataclass(frozen=True)
class Near:
    """One batch's look-ups in one stack, and what the gradient of their sums scatters to."""

    pooled: torch.Tensor  # (F, B, D)
    ids: torch.Tensor  # (n,) int64 rows of the stack
    bag: torch.Tensor  # (n,) int64 number of the bag, feature * B + sample
    weights: torch.Tensor | None  # (n,)

    def leaf(self, first: int, last: int) -> torch.Tensor:
        """An autograd leaf (F, b, D) of the samples [first, last)."""
        return self.pooled[:, first:last].detach().requires_grad_(torch.is_grad_enabled())


class Replicated:
    """All data_parallel tables of a plan on one rank."""

    def __init__(
        self, plan: Plan, features: Mapping[str, Feature], optimizer: SparseOptimizer, device: torch.device
    ) -> None:
        tables = {name: table for name, table in plan.tables.items() if table.kind == "data_parallel"}
        self._device = device
        self.stacks: list[Stack] = []
        for key in sorted({(table.dim, table.dtype) for table in tables.values()}):
            rows = {name: table.rows for name, table in tables.items() if (table.dim, table.dtype) == key}
            starts = np.cumsum([0, *rows.values()]).tolist()
            bases = dict(zip(rows, starts, strict=False))
            used = [(index, bases[f.table]) for index, f in enumerate(features.values()) if f.table in rows]
            table = FusedTable(starts[-1], *key, optimizer, device)
            self.stacks.append(Stack(table, bases, rows, tuple(i for i, _ in used), tuple(b for _, b in used)))

    @property
    def num_gradients(self) -> int:
        """Numbers of all dense gradients: what `collect` fills."""
        return sum(stack.table.rows * stack.table.width for stack in self.stacks)

    def look_up(self, bags: Sequence[Bags], batch: int) -> tuple[Near, ...]:
        """Pool the bags of `batch` samples locally, per stack."""
        return tuple(self._look_up(stack, [bags[i] for i in stack.features], batch) for stack in self.stacks)

    def _look_up(self, stack: Stack, bags: Sequence[Bags], batch: int) -> Near:
        ids = np.concatenate([bag.ids + base for bag, base in zip(bags, stack.feature_bases, strict=True)])
        lengths = torch.from_numpy(np.concatenate([bag.lengths for bag in bags])).to(self._device)
        weights = None
        if any(bag.weights is not None for bag in bags):
            ones = [np.ones(len(bag.ids), np.float32) if bag.weights is None else bag.weights for bag in bags]
            weights = torch.from_numpy(np.concatenate(ones)).to(self._device)
        rows = torch.from_numpy(ids).to(self._device)
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=self._device)
        torch.cumsum(lengths, 0, dtype=torch.int32, out=offsets[1:])
        with torch.no_grad():
            pooled = stack.table.look_up(rows.to(torch.int32), offsets, weights)
        bag = torch.repeat_interleave(torch.arange(len(lengths), device=self._device), lengths, output_size=len(rows))
        return Near(pooled.view(len(stack.features), batch, stack.table.width), rows, bag, weights)

    def collect(self, nears: Sequence[Near], chunks: Sequence[Sequence[torch.Tensor]], out: torch.Tensor) -> None:
        """Write the dense gradients of this rank's samples into `out` (num_gradients,).

        chunks: for each chunk the leaf of each stack.
        """
        sizes = [stack.table.rows * stack.table.width for stack in self.stacks]
        leaves = zip(*chunks, strict=True)
        for stack, near, part, own in zip(self.stacks, nears, out.split(sizes) if sizes else (), leaves, strict=True):
            gradient = torch.cat([torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in own], dim=1)
            rows = gradient.view(-1, stack.table.width)[near.bag]
            rows = rows if near.weights is None else rows * near.weights.unsqueeze(1)
            part.zero_()
            part.view(stack.table.rows, -1).index_add_(0, near.ids, rows)

    def update(self, gradients: torch.Tensor) -> None:
        """Apply the optimizer to all rows, given `collect`'s gradients summed over all ranks."""
        sizes = [stack.table.rows * stack.table.width for stack in self.stacks]
        for stack, part in zip(self.stacks, gradients.split(sizes) if sizes else (), strict=True):
            rows = torch.arange(stack.table.rows + 1, dtype=torch.int32, device=self._device)
            pooled = stack.table.look_up(rows[:-1], rows, None)
            pooled.backward(part.view(stack.table.rows, -1))
