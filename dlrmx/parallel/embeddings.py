"""All embedding tables of one rank, sharded and replicated, and how their vectors become the model's inputs.

Legend: B samples of this rank, F features, D_f embedding dim of a feature.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from dlrmx.model.initial import fill_initial
from dlrmx.parallel.codec import Codecs
from dlrmx.parallel.exchange import Boundary, Exchange
from dlrmx.parallel.layout import make_layout
from dlrmx.parallel.replicated import Replicated
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Plan, Rectangle, Strip
from dlrmx.recipe.schema import Feature, SparseOptimizer, Thresholds


class Embeddings:
    """Applies a plan: the exchange of the sharded tables, the local look-ups of the replicated ones."""

    def __init__(
        self,
        plan: Plan,
        features: Mapping[str, Feature],
        optimizer: SparseOptimizer,
        *,
        wire: Wire,
        device: torch.device,
        codecs: Codecs | None = None,
        thresholds: Thresholds | None = None,
    ) -> None:
        """codecs: the wire formats of vectors and gradients, fp32 by default; thresholds: none by default."""
        layout = make_layout(plan, features)
        self._plan, self._layout, self._rank = plan, layout, wire.rank
        self._optimizer, self._device = optimizer, device
        codecs = codecs or Codecs()
        self.exchange = Exchange(layout, wire, optimizer, device, codecs)
        self.exchange.threshold(thresholds or Thresholds(), codecs, layout, list(plan.tables))
        self.replicated = Replicated(plan, features, optimizer, device)
        self._means = [feature.pooling == "mean" for feature in features.values()]
        # Per feature: its column slices from left to right, and of each the slots, several where rows are cut in bands.
        slices: list[dict[int, list[int]]] = [{} for _ in features]
        for index, slot in sorted(enumerate(layout.slots), key=lambda pair: _corner(pair[1].strip)):
            slices[slot.feature].setdefault(slot.strip.col_start, []).append(index)
        self._slices = [list(of_feature.values()) for of_feature in slices]

    def features(
        self, boundary: Boundary, nears: Sequence[torch.Tensor], lengths: Sequence[np.ndarray]
    ) -> list[torch.Tensor]:
        """Per feature its pooled vectors (b, D_f): column slices side by side, divided by the ids for mean pooling.

        Of one chunk's b samples: nears (F, b, D) by stack of replicated tables, lengths (b,) by feature.
        """
        pooled = [_side_by_side(boundary.slots, slices) for slices in self._slices if slices]
        sharded = iter(pooled)
        local = {
            feature: vectors
            for stack, near in zip(self.replicated.stacks, nears, strict=True)
            # One view each of the whole leaf: a slice's gradient would be as large as the leaf, for each feature.
            for feature, vectors in zip(stack.features, near, strict=True)
        }
        vectors = [next(sharded) if slots else local[index] for index, slots in enumerate(self._slices)]
        return [
            vector / self._divisor(ids) if mean else vector
            for vector, ids, mean in zip(vectors, lengths, self._means, strict=True)
        ]

    def _divisor(self, ids: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.maximum(ids, 1)).to(self._device, torch.float32).unsqueeze(1)

    def set_learning_rate(self, factor: float) -> None:
        """Set the rate to `factor` times the recipe's; before the look-up of the step that it is for."""
        for table in (*self.exchange.tables, *(stack.table for stack in self.replicated.stacks)):
            table.set_learning_rate(self._optimizer.lr * factor)

    def held(self) -> Iterator[tuple[Rectangle, torch.Tensor, torch.Tensor | None]]:
        """What this rank holds of the sharded tables: rectangle, weights (rows, cols), optimizer sums or None."""
        for table, group in zip(self.exchange.tables, self._layout.placed[self._rank], strict=True):
            for placed in group:
                rows = slice(placed.base, placed.base + placed.rectangle.rows)
                yield placed.rectangle, table.weight[rows], None if table.state is None else table.state[rows]

    def copies(self) -> Iterator[tuple[Rectangle, torch.Tensor, torch.Tensor | None]]:
        """The replicated tables, whole, as `held` gives the sharded ones."""
        for stack in self.replicated.stacks:
            for name, base in stack.bases.items():
                rows = slice(base, base + stack.rows[name])
                whole = Rectangle(name, 0, stack.rows[name], 0, stack.table.width, self._rank, "hbm")
                state = stack.table.state
                yield whole, stack.table.weight[rows], None if state is None else state[rows]

    def initialise(self, seed: int) -> None:
        """Give every table its initial values, which depend on seed, table, row and column alone."""
        for rectangle, weight, _ in (*self.held(), *self.copies()):
            fill_initial(
                weight,
                seed=seed,
                table=rectangle.table,
                rows=self._plan.tables[rectangle.table].rows,
                row_start=rectangle.row_start,
                col_start=rectangle.col_start,
            )


def _corner(strip: Strip) -> tuple[int, int]:
    return strip.col_start, strip.row_start


def _side_by_side(slots: Sequence[torch.Tensor], slices: Sequence[Sequence[int]]) -> torch.Tensor:
    """Column slices joined, each the sum of its bands of rows: (B, D_f)."""
    parts = [functools.reduce(torch.add, [slots[index] for index in bands]) for bands in slices]
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
