"""One training step, stage by stage, and the forward pass that evaluation shares with it.

Each stage that communicates is started and awaited here, and overlap is the order of these calls: what is started
early travels while the calls in between compute. A wire without overlap waits where a stage starts, in the same order,
so that the numbers are the same. Losses and gradients are sums over the samples; 1/G (G rows of the global batch) is
applied once everything has arrived.

Legend: B samples of this rank, G rows of the global batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from dlrmx.data.batches import Batch
from dlrmx.errors import DlrmxError
from dlrmx.model.build import Model
from dlrmx.parallel.carrier import Counts, Order, PendingCounts, PendingIds
from dlrmx.parallel.codec import Codecs
from dlrmx.parallel.dense import DensePart
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.exchange import Boundary, Requests
from dlrmx.parallel.replicated import Near
from dlrmx.parallel.routing import Routed
from dlrmx.parallel.wire import Wire
from dlrmx.train.stages import Stages


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
    model: Model
    dense: DensePart
    embeddings: Embeddings
    codecs: Codecs
    stages: Stages
    device: torch.device
    autocast: torch.dtype | None


@dataclass(frozen=True)
class Asked:
    """A batch of which every rank is being told how much it gets."""

    rows: Slice
    step: int
    routed: Routed
    counts: PendingCounts


@dataclass(frozen=True)
class Sent:
    """A batch whose ids are on their way."""

    rows: Slice
    step: int
    routed: Routed
    counts: Counts
    ids: PendingIds


# Asks for the batch after the one that is worked on, given what is to be done after that one; None: not now.
Upcoming = Callable[[Order], Asked | None]


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
    bottom: torch.Tensor | None  # the bottom MLP's output; its graph ends here, and `joint` begins the next
    joint: torch.Tensor | None

    @property
    def order(self) -> Order:
        """What rank 0 wants done after this step."""
        return self.requests.came.counts.order


class NonFinite(DlrmxError):
    """A NaN or infinite loss or gradient; no table or parameter was changed by this step."""


class PeerStopped(DlrmxError):
    """Another rank raised NonFinite; its own message says what it saw."""


def ask(parts: Parts, rows: Slice, *, step: int, order: Order = Order.GO_ON) -> Asked:
    """Route a batch's ids and start telling every rank how much it gets; opens a step. Collective."""
    routed = parts.embeddings.exchange.route(list(rows.batch.bags.values()), len(rows.batch.labels))
    counts = parts.embeddings.exchange.counts(routed, step=step, batch=rows.rows_of_global, order=order)
    return Asked(rows, step, routed, counts)


def send(parts: Parts, asked: Asked) -> Sent:
    """Start sending the ids of a batch. Collective."""
    counts = asked.counts.wait()
    return Sent(asked.rows, asked.step, asked.routed, counts, parts.embeddings.exchange.ids(asked.routed, counts))


def _no_more(order: Order) -> None:
    """Nothing is asked for ahead."""


def forward(parts: Parts, rows: Slice, *, step: int, order: Order = Order.GO_ON) -> Forward:
    """Exchange, look up and run the model on this rank's rows. Collective."""
    return _forward(parts, send(parts, ask(parts, rows, step=step, order=order)), _no_more)[0]


def _forward(parts: Parts, sent: Sent, upcoming: Upcoming) -> tuple[Forward, Asked | None]:
    """The forward pass of a batch; under the way of its vectors the next one is asked for and the bottom MLP runs."""
    batch, exchange, lap = sent.rows.batch, parts.embeddings.exchange, parts.stages.lap
    size, bags = len(batch.labels), list(batch.bags.values())
    requests = exchange.arrive(sent.ids.wait(), sent.counts)
    lap("ids")
    pooled = exchange.look_up(requests)
    vectors = exchange.vectors(pooled, sent.routed, requests)
    lap("look_up")
    asked = upcoming(sent.counts.order)
    lap("route")
    nears = parts.embeddings.replicated.look_up(bags, size)
    labels = torch.from_numpy(batch.labels).to(parts.device, non_blocking=True)
    bottom = _run_bottom(parts, batch)
    joint = None if bottom is None else bottom.detach().requires_grad_(torch.is_grad_enabled())
    lap("bottom")
    boundary = vectors.wait()
    lap("vectors")
    with _autocast(parts):
        logits = parts.model.above(joint, parts.embeddings.features(boundary, nears, bags, size)).float()
    lap("top")
    return Forward(logits, labels, sent.routed, requests, pooled, boundary, nears, bottom, joint), asked


def train_step(parts: Parts, rows: Slice, *, step: int, rate: float, order: Order = Order.GO_ON) -> Forward:
    """Train on this rank's rows alone, without any that follow: see `train_sent`. Collective."""
    return train_sent(parts, send(parts, ask(parts, rows, step=step, order=order)), rate=rate)[0]


def train_sent(parts: Parts, sent: Sent, *, rate: float, upcoming: Upcoming = _no_more) -> tuple[Forward, Sent | None]:
    """Train on a batch at `rate` times the recipe's learning rates; gives the next one, its ids on the way. Collective.

    Raises NonFinite where this rank's loss or gradients are not finite and PeerStopped where another's are, on all
    ranks together and before any table or parameter is changed.
    """
    exchange, replicated, lap = parts.embeddings.exchange, parts.embeddings.replicated, parts.stages.lap
    parts.embeddings.set_learning_rate(rate)
    done, asked = _forward(parts, sent, upcoming)
    following = None if asked is None else send(parts, asked)
    lap("route")
    loss = binary_cross_entropy_with_logits(done.logits, done.labels, reduction="sum")
    parts.dense.zero()
    loss.backward()
    bad = _first_non_finite(_suspects(parts, done, loss))
    gradients = exchange.gradients(done.boundary, done.routed, done.requests, float(bad is not None))
    if done.bottom is not None and done.joint is not None:
        done.bottom.backward(done.joint.grad)
    late = _first_non_finite(_named_gradients(parts, below=True))
    replicated.collect(done.nears, parts.dense.extra)
    dense = parts.dense.start_sum(parts.wire, step=sent.step)
    lap("backward")
    sums, flagged = gradients.wait()
    lap("gradients")
    dense.wait()
    lap("dense")
    _stop_where(_blame(parts, bad or late, flagged), parts.wire.rank, sent)

    scale = 1 / sent.rows.rows_of_global
    parts.dense.buffer.mul_(scale)
    exchange.update(done.pooled, [gradient.mul_(scale) for gradient in sums])
    replicated.update(parts.dense.extra)
    parts.dense.step(rate)
    lap("update")
    return done, following


def _run_bottom(parts: Parts, batch: Batch) -> torch.Tensor | None:
    if parts.model.bottom is None:
        return None
    dense = torch.from_numpy(batch.dense).to(parts.device, non_blocking=True)
    with _autocast(parts):
        bottom: torch.Tensor = parts.model.bottom(dense)
    return bottom


def _autocast(parts: Parts) -> torch.autocast:
    return torch.autocast(parts.device.type, dtype=parts.autocast, enabled=parts.autocast is not None)


def _suspects(parts: Parts, done: Forward, loss: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Everything above the bottom MLP that a NaN would show up in, in the order of the forward and backward pass."""
    yield "the loss", loss.detach()
    yield from _named_gradients(parts, below=False)
    leaves = (*done.boundary.leaves, *(near.leaf for near in done.nears))
    for leaf in leaves:
        if leaf.grad is not None:
            yield "the gradient of pooled embeddings", leaf.grad


def _named_gradients(parts: Parts, *, below: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """The gradients of the bottom MLP's parameters, or of all others."""
    for name, gradient in parts.dense.gradients():
        if name.startswith("bottom.") == below:
            yield f"the gradient of {name}", gradient


def _blame(parts: Parts, bad: str | None, flagged: Sequence[int]) -> tuple[str | None, int | None]:
    """What was not finite on this rank, or which rank saw it. Collective where only the sum tells.

    The flag leaves before the bottom MLP's gradients are known. What is not finite there makes their sum so on all
    ranks, which then ask each other for its origin.
    """
    if flagged or bool(torch.isfinite(parts.dense.buffer.sum())) or bool(torch.isfinite(parts.dense.buffer).all()):
        return bad, flagged[0] if flagged else None
    origin = parts.wire.agree(-1 if bad is None else parts.wire.rank)
    if origin < 0:  # finite numbers everywhere, whose sum overflowed
        return "the sum of the dense gradients over all ranks", None
    return bad, origin


def _first_non_finite(tensors: Iterator[tuple[str, torch.Tensor]]) -> str | None:
    # A sum is 30 times cheaper than isfinite().all(); only when it is not finite is every element looked at.
    for name, tensor in tensors:
        if not bool(torch.isfinite(tensor.sum())) and not bool(torch.isfinite(tensor).all()):
            return name
    return None


def _stop_where(blamed: tuple[str | None, int | None], rank: int, sent: Sent) -> None:
    bad, other = blamed
    if bad is not None:
        raise NonFinite(
            f"{bad} is not finite at step {sent.step:,} on rank {rank} (batch: {sent.rows.where})",
            hint="lower the learning rate or warm it up; look at these rows' dense values; no table was changed",
        )
    if other is not None:
        raise PeerStopped(f"step {sent.step}: rank {other} saw a non-finite value")
