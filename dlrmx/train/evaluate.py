"""Evaluation: every row of a split once, over all ranks, and metrics of the whole.

Up to EXACT_ROWS rows the scores of all ranks are joined on rank 0 and the AUC is exact; above, each rank counts its
own into a histogram, memory stays flat, and the record names the bound of the error.
"""

from collections.abc import Callable, Iterator

import torch

from dlrmx.data.batches import Split
from dlrmx.parallel.carrier import Order
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import cut
from dlrmx.train.ahead import Ahead
from dlrmx.train.histogram import Histogram
from dlrmx.train.metrics import Metrics, binary_metrics
from dlrmx.train.step import Parts, Slice, forward
from dlrmx.train.stream import pinned

EXACT_ROWS = 100_000_000  # 800 MB of logits and labels on rank 0


def evaluate(
    parts: Parts,
    split: Split,
    *,
    batch: int,
    step: int,
    stop_asked: Callable[[], bool] = lambda: False,
    on_scores: Callable[[torch.Tensor], None] | None = None,
) -> Metrics | None:
    """Metrics of all labelled rows of `split` in batches of `batch`, on rank 0; None on the other ranks. Collective.

    `stop_asked` is rank 0's; where it says so, all ranks leave after the same batch and the result is None everywhere.
    `on_scores`, given on all ranks or none, gets the logits and labels (n, 2) of each batch in row order, on rank 0.
    """
    exact = split.rows <= EXACT_ROWS
    scores, histogram = [torch.empty(0, 2, device=parts.device)], Histogram()
    with torch.no_grad(), Ahead(pinned(_slices(parts.wire, split, batch), parts.device)) as slices:
        for rows in slices:
            order = Order.STOP if parts.wire.rank == 0 and stop_asked() else Order.GO_ON
            done = forward(parts, rows, step=step, order=order)
            if done.order == Order.STOP:
                return None
            own = torch.stack([done.logits, done.labels], dim=1)
            if on_scores is not None and (every := parts.wire.gather(own)) is not None:
                on_scores(every)  # each rank has one stretch of the batch, so that this is row order
            labelled = own[~done.labels.isnan()]
            if exact:
                scores.append(labelled)
            else:
                histogram.add(*labelled.cpu().numpy().T)
    if exact:
        every = parts.wire.gather(torch.cat(scores))
        return None if every is None else score_metrics(every)
    metrics = histogram.join(parts.wire)
    return metrics if parts.wire.rank == 0 else None


def _slices(wire: Wire, split: Split, batch: int) -> Iterator[Slice]:
    """This rank's part of each batch, in row order."""
    for first in range(0, split.rows, batch):
        size = min(batch, split.rows - first)
        begin, end = (first + cut(size, wire.world, rank) for rank in (wire.rank, wire.rank + 1))
        yield Slice(split.between(begin, end), size, f"rows {begin:,} to {end:,}")


def score_metrics(scores: torch.Tensor) -> Metrics:
    """Metrics of (n, 2) logits and labels."""
    columns = scores.cpu().numpy()
    return binary_metrics(columns[:, 0], columns[:, 1])
