"""Evaluation: every row of a split once, over all ranks, and exact metrics of the whole."""

from collections.abc import Callable

import numpy as np
import torch

from dlrmx.data.batches import Split
from dlrmx.parallel.exchange import Order
from dlrmx.plan.shards import cut
from dlrmx.train.metrics import Metrics, binary_metrics
from dlrmx.train.step import Parts, Slice, forward


def evaluate(
    parts: Parts, split: Split, *, batch: int, step: int, stop_asked: Callable[[], bool] = lambda: False
) -> Metrics | None:
    """Metrics of all rows of `split` in batches of `batch`, on rank 0; None on the other ranks. Collective.

    `stop_asked` is rank 0's; where it says so, all ranks leave after the same batch and the result is None everywhere.
    """
    scores = []
    with torch.no_grad():
        for first in range(0, split.rows, batch):
            size = min(batch, split.rows - first)
            mine = [first + cut(size, parts.wire.world, rank) for rank in (parts.wire.rank, parts.wire.rank + 1)]
            rows = Slice(split.take(np.arange(*mine, dtype=np.int64)), size, f"rows {mine[0]:,} to {mine[1]:,}")
            order = Order.STOP if parts.wire.rank == 0 and stop_asked() else Order.GO_ON
            done = forward(parts, rows, step=step, order=order)
            if done.counts.order == Order.STOP:
                return None
            scores.append(torch.stack([done.logits, done.labels], dim=1))
    every = parts.wire.gather(torch.cat(scores) if scores else torch.empty(0, 2, device=parts.device))
    return None if every is None else score_metrics(every)


def score_metrics(scores: torch.Tensor) -> Metrics:
    """Metrics of (n, 2) logits and labels."""
    columns = scores.cpu().numpy()
    return binary_metrics(columns[:, 0], columns[:, 1])
