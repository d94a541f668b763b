"""One training step, stage by stage, and the forward pass that evaluation shares with it.

Each stage that communicates is started and awaited here, so that overlap is an order of these calls. Losses and
gradients are sums over the samples; 1/G (G rows of the global batch) is applied once everything has arrived.

Legend: B samples of this rank, G rows of the global batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from dlrmx.data.batches import Batch
from dlrmx.errors import DlrmxError
from dlrmx.parallel.carrier import Order
from dlrmx.parallel.codec import Codecs
from dlrmx.parallel.dense import DensePart
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.exchange import Boundary, Requests
from dlrmx.parallel.replicated import Near
from dlrmx.parallel.routing import Routed
from dlrmx.parallel.wire import Wire


@dataclass(frozen=True)
class Slice:
    """This rank's rows of a global batch."""

    batch: Batch
    rows_of_global: int  # G
    where: str  # for messages: epoch and rows


@dataclass(frozen=True)
class Parts:
    """What a step works on."""

    wire: Wire
    model: nn.Module
    dense: DensePart
    embeddings: Embeddings
    codecs: Codecs
    device: torch.device
    autocast: torch.dtype | None


@dataclass(frozen=True)
class Forward:
    """A forward pass and what its backward pass needs."""

    logits: torch.Tensor  # (B,)
    labels: torch.Tensor  # (B,)
    routed: Routed
    requests: Requests
    pooled: tuple[torch.Tensor, ...]
    boundary: Boundary
    nears: tuple[Near, ...]

    @property
    def order(self) -> Order:
        """What rank 0 wants done after this step."""
        return self.requests.came.counts.order


class NonFinite(DlrmxError):
    """A NaN or infinite loss or gradient; no table or parameter was changed by this step."""


class PeerStopped(DlrmxError):
    """Another rank raised NonFinite; its own message says what it saw."""


def forward(parts: Parts, rows: Slice, *, step: int, order: Order = Order.GO_ON) -> Forward:
    """Exchange, look up and run the model on this rank's rows. Collective."""
    batch, exchange = rows.batch, parts.embeddings.exchange
    size, bags = len(batch.labels), list(batch.bags.values())
    routed = exchange.route(bags, size)
    counts = exchange.counts(routed, step=step, batch=rows.rows_of_global, order=order).wait()
    requests = exchange.arrive(exchange.ids(routed, counts).wait(), counts)
    pooled = exchange.look_up(requests)
    boundary = exchange.vectors(pooled, routed, requests).wait()
    nears = parts.embeddings.replicated.look_up(bags, size)
    labels = torch.from_numpy(batch.labels).to(parts.device, non_blocking=True)
    logits = _run_model(parts, batch, parts.embeddings.features(boundary, nears, bags, size))
    return Forward(logits, labels, routed, requests, pooled, boundary, nears)


def train_step(parts: Parts, rows: Slice, *, step: int, rate: float, order: Order = Order.GO_ON) -> Forward:
    """Train on this rank's rows at `rate` times the recipe's learning rates. Collective.

    Raises NonFinite where this rank's loss or gradients are not finite and PeerStopped where another's are, on all
    ranks together and before any table or parameter is changed.
    """
    exchange, replicated = parts.embeddings.exchange, parts.embeddings.replicated
    parts.embeddings.set_learning_rate(rate)
    done = forward(parts, rows, step=step, order=order)
    loss = binary_cross_entropy_with_logits(done.logits, done.labels, reduction="sum")
    parts.dense.zero()
    loss.backward()

    bad = _first_non_finite(_suspects(parts, done, loss))
    gradients, flagged = exchange.gradients(done.boundary, done.routed, done.requests, float(bad is not None)).wait()
    replicated.collect(done.nears, parts.dense.extra)
    parts.dense.sum(parts.wire, step=step)
    if not flagged:  # finite numbers everywhere, whose sum may still overflow
        bad = _first_non_finite(iter([("the sum of the dense gradients over all ranks", parts.dense.buffer)]))
    _stop_where(bad, flagged, parts.wire.rank, step, rows)

    scale = 1 / rows.rows_of_global
    parts.dense.buffer.mul_(scale)
    exchange.update(done.pooled, [gradient.mul_(scale) for gradient in gradients])
    replicated.update(parts.dense.extra)
    parts.dense.step(rate)
    return done


def _run_model(parts: Parts, batch: Batch, features: Sequence[torch.Tensor]) -> torch.Tensor:
    dense = torch.from_numpy(batch.dense).to(parts.device, non_blocking=True)
    with torch.autocast(parts.device.type, dtype=parts.autocast, enabled=parts.autocast is not None):
        logits: torch.Tensor = parts.model(dense, features)
    return logits.float()


def _suspects(parts: Parts, done: Forward, loss: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Everything that a NaN would show up in, in the order of the forward and backward pass."""
    yield "the loss", loss.detach()
    yield from ((f"the gradient of {name}", gradient) for name, gradient in parts.dense.gradients())
    leaves = (*done.boundary.leaves, *(near.leaf for near in done.nears))
    for leaf in leaves:
        if leaf.grad is not None:
            yield "the gradient of pooled embeddings", leaf.grad


def _first_non_finite(tensors: Iterator[tuple[str, torch.Tensor]]) -> str | None:
    # A sum is 30 times cheaper than isfinite().all(); only when it is not finite is every element looked at.
    for name, tensor in tensors:
        if not bool(torch.isfinite(tensor.sum())) and not bool(torch.isfinite(tensor).all()):
            return name
    return None


def _stop_where(bad: str | None, flagged: Sequence[int], rank: int, step: int, rows: Slice) -> None:
    if bad is not None:
        raise NonFinite(
            f"{bad} is not finite at step {step:,} on rank {rank} (batch: {rows.where})",
            hint="lower the learning rate or warm it up; look at these rows' dense values; no table was changed",
        )
    if flagged:
        raise PeerStopped(f"step {step}: rank {flagged[0]} saw a non-finite value")
