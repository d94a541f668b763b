"""One training step, stage by stage, and the forward pass that evaluation shares with it.

Each stage that communicates is started and awaited here, and overlap is the order of these calls: what is started
early travels while the calls in between compute. A wire without overlap waits where a stage starts, in the same order,
so that the numbers are the same. Losses and gradients are sums over the samples; 1/G (G rows of the global batch) is
applied once everything has arrived.

The model runs on this rank's samples in n chunks, one after the other: the vectors of the later ones travel under the
work on the first ones, the gradients of the first ones under the work on the later ones. The bottom MLP, look-ups and
updates are of the whole batch, so that n changes the order of additions in the gradients above the bottom MLP alone.

Legend: B samples of this rank, b of a chunk, G rows of the global batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from dlrmx.data.batches import Batch
from dlrmx.errors import DlrmxError
from dlrmx.model.build import Model
from dlrmx.parallel.carrier import Counts, Order, PendingCounts, PendingIds
from dlrmx.parallel.chunks import Chunked
from dlrmx.parallel.codec import Codecs
from dlrmx.parallel.dense import DensePart, all_finite
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.exchange import Boundary, PendingBoundary, Requests
from dlrmx.parallel.replicated import Near
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import cut
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
    chunks: int = 1  # n


@dataclass(frozen=True)
class Asked:
    """A batch of which every rank is being told how much it gets."""

    rows: Slice
    step: int
    routed: Chunked
    counts: PendingCounts


@dataclass(frozen=True)
class Sent:
    """A batch whose ids are on their way."""

    rows: Slice
    step: int
    routed: Chunked
    counts: Counts
    ids: PendingIds


# Asks for the batch after the one that is worked on, given what is to be done after that one; None: not now.
Upcoming = Callable[[Order], Asked | None]


@dataclass(frozen=True)
class Begun:
    """A batch whose vectors are on their way, chunk by chunk, and what of its forward pass does not wait for them."""

    rows: Slice
    requests: Requests
    pooled: tuple[torch.Tensor, ...]
    vectors: list[PendingBoundary]
    labels: torch.Tensor  # (B,)
    nears: tuple[Near, ...]
    bottom: torch.Tensor | None  # of the bottom MLP; its graph ends here, and each chunk's `joint` begins the next


@dataclass(frozen=True)
class Passed:
    """A chunk's forward pass and what its backward pass needs."""

    logits: torch.Tensor  # (b,)
    labels: torch.Tensor  # (b,)
    boundary: Boundary
    nears: tuple[torch.Tensor, ...]  # (F, b, D) leaves
    joint: torch.Tensor | None


@dataclass(frozen=True)
class Done:
    """What a batch came to."""

    logits: torch.Tensor  # (B,)
    labels: torch.Tensor  # (B,)
    order: Order  # what rank 0 wants done after this step


class NonFinite(DlrmxError):
    """A NaN or infinite loss or gradient; no table or parameter was changed by this step."""


class PeerStopped(DlrmxError):
    """Another rank raised NonFinite; its own message says what it saw."""


def ask(parts: Parts, rows: Slice, *, step: int, order: Order = Order.GO_ON) -> Asked:
    """Route a batch's ids and start telling every rank how much it gets; opens a step of training. Collective.

    Where a step finds thresholds anew its batch is one chunk, for they are found in all of it.
    """
    return _ask(parts, rows, 1 if parts.embeddings.exchange.finds_thresholds(step) else parts.chunks, step, order)


def _ask(parts: Parts, rows: Slice, chunks: int, step: int, order: Order) -> Asked:
    exchange = parts.embeddings.exchange
    routed = exchange.route(list(rows.batch.bags.values()), len(rows.batch.labels), chunks)
    return Asked(rows, step, routed, exchange.counts(routed, step=step, batch=rows.rows_of_global, order=order))


def send(parts: Parts, asked: Asked) -> Sent:
    """Start sending the ids of a batch. Collective."""
    counts = asked.counts.wait()
    return Sent(asked.rows, asked.step, asked.routed, counts, parts.embeddings.exchange.ids(asked.routed, counts))


def _no_more(order: Order) -> None:
    """Nothing is asked for ahead."""


def forward(parts: Parts, rows: Slice, *, step: int, order: Order = Order.GO_ON) -> Done:
    """Exchange, look up and run the model on this rank's rows, in one chunk. Collective."""
    sent = send(parts, _ask(parts, rows, 1, step, order))
    begun, _ = _begin(parts, sent, _no_more)
    passed = _forward(parts, begun, 0)
    return Done(passed.logits, passed.labels, sent.counts.order)


def _begin(parts: Parts, sent: Sent, upcoming: Upcoming) -> tuple[Begun, Asked | None]:
    """Look up, and start vectors on their way; under it the next batch is asked for and the bottom MLP runs."""
    batch, exchange, lap = sent.rows.batch, parts.embeddings.exchange, parts.stages.lap
    requests = exchange.arrive(sent.ids.wait(), sent.counts)
    lap("ids")
    pooled = exchange.look_up(requests)
    vectors = exchange.vectors(pooled, sent.routed, requests)
    lap("look_up")
    asked = upcoming(sent.counts.order)
    lap("route")
    nears = parts.embeddings.replicated.look_up(list(batch.bags.values()), len(batch.labels))
    labels = torch.from_numpy(batch.labels).to(parts.device, non_blocking=True)
    bottom = _run_bottom(parts, batch)
    lap("bottom")
    return Begun(sent.rows, requests, pooled, vectors, labels, nears, bottom), asked


def _forward(parts: Parts, begun: Begun, chunk: int) -> Passed:
    """The forward pass of one chunk, from where its vectors arrive."""
    boundary = begun.vectors[chunk].wait()
    parts.stages.lap("vectors")
    first, last = (cut(len(begun.labels), len(begun.vectors), part) for part in (chunk, chunk + 1))
    joint = None
    if begun.bottom is not None:
        joint = begun.bottom[first:last].detach().requires_grad_(torch.is_grad_enabled())
    nears = tuple(near.leaf(first, last) for near in begun.nears)
    lengths = [bag.lengths[first:last] for bag in begun.rows.batch.bags.values()]
    with _autocast(parts):
        logits = parts.model.above(joint, parts.embeddings.features(boundary, nears, lengths)).float()
    parts.stages.lap("top")
    return Passed(logits, begun.labels[first:last], boundary, nears, joint)


def train_step(parts: Parts, rows: Slice, *, step: int, rate: float, order: Order = Order.GO_ON) -> Done:
    """Train on this rank's rows alone, without any that follow: see `train_sent`. Collective."""
    return train_sent(parts, send(parts, ask(parts, rows, step=step, order=order)), rate=rate)[0]


def train_sent(parts: Parts, sent: Sent, *, rate: float, upcoming: Upcoming = _no_more) -> tuple[Done, Sent | None]:
    """Train on a batch at `rate` times the recipe's learning rates; gives the next one, its ids on the way. Collective.

    Raises NonFinite where this rank's loss or gradients are not finite and PeerStopped where another's are, on all
    ranks together and before any table or parameter is changed.
    """
    exchange, replicated, lap = parts.embeddings.exchange, parts.embeddings.replicated, parts.stages.lap
    parts.embeddings.set_learning_rate(rate)
    begun, asked = _begin(parts, sent, upcoming)
    parts.dense.begin(parts.wire, passes=len(begun.vectors))
    chunks, under_way, bad = [], [], None
    for chunk in range(len(begun.vectors)):
        passed = _forward(parts, begun, chunk)
        bad = _backward(parts, passed) or bad
        under_way.append(exchange.gradients(passed.boundary, float(bad is not None)))
        chunks.append(passed)
        lap("backward")
    if begun.bottom is not None:
        begun.bottom.backward(torch.cat([_grad(passed.joint) for passed in chunks]))
    late = _bad_gradient(parts)  # the bottom MLP's, if of no other
    replicated.collect(begun.nears, [passed.nears for passed in chunks], parts.dense.extra)
    dense = parts.dense.start_sum(parts.wire, step=sent.step)
    lap("backward")
    sums, flagged = exchange.arrived(under_way, begun.requests)
    lap("gradients")
    dense.wait()
    lap("dense")
    _stop_where(_blame(parts, bad or late, flagged), parts.wire.rank, sent)
    # Not before: on a slow link these ids would hold up the gradients, and nothing would travel under the update.
    following = None if asked is None else send(parts, asked)
    lap("route")

    scale = 1 / sent.rows.rows_of_global
    parts.dense.buffer.mul_(scale)
    exchange.update(begun.pooled, [gradient.mul_(scale) for gradient in sums])
    replicated.update(parts.dense.extra)
    parts.dense.step(rate)
    lap("update")
    logits = torch.cat([passed.logits.detach() for passed in chunks])
    return Done(logits, begun.labels, sent.counts.order), following


def _grad(joint: torch.Tensor | None) -> torch.Tensor:
    assert joint is not None and joint.grad is not None
    return joint.grad


def _backward(parts: Parts, passed: Passed) -> str | None:
    """A chunk's backward pass down to its leaves, added to the gradients of the chunks before; what is not finite."""
    loss = binary_cross_entropy_with_logits(passed.logits, passed.labels, reduction="sum")
    loss.backward()
    if not all_finite(loss.detach()):
        return "the loss"
    leaves = (leaf.grad for leaf in (*passed.boundary.leaves, *passed.nears) if leaf.grad is not None)
    return _bad_gradient(parts) or (None if all(map(all_finite, leaves)) else "the gradient of pooled embeddings")


def _bad_gradient(parts: Parts) -> str | None:
    name = parts.dense.not_finite()
    return None if name is None else f"the gradient of {name}"


def _run_bottom(parts: Parts, batch: Batch) -> torch.Tensor | None:
    if parts.model.bottom is None:
        return None
    dense = torch.from_numpy(batch.dense).to(parts.device, non_blocking=True)
    with _autocast(parts):
        bottom: torch.Tensor = parts.model.bottom(dense)
    return bottom


def _autocast(parts: Parts) -> torch.autocast:
    return torch.autocast(parts.device.type, dtype=parts.autocast, enabled=parts.autocast is not None)


def _blame(parts: Parts, bad: str | None, flagged: Sequence[int]) -> tuple[str | None, int | None]:
    """What was not finite on this rank, or which rank saw it. Collective where only the sum tells.

    The flag leaves before the bottom MLP's gradients are known. What is not finite there makes their sum so on all
    ranks, which then ask each other for its origin.
    """
    if flagged or all_finite(parts.dense.buffer):
        return bad, flagged[0] if flagged else None
    origin = parts.wire.agree(-1 if bad is None else parts.wire.rank)
    if origin < 0:  # finite numbers everywhere, whose sum overflowed
        return "the sum of the dense gradients over all ranks", None
    return bad, origin


def _stop_where(blamed: tuple[str | None, int | None], rank: int, sent: Sent) -> None:
    bad, other = blamed
    if bad is not None:
        raise NonFinite(
            f"{bad} is not finite at step {sent.step:,} on rank {rank} (batch: {sent.rows.where})",
            hint="lower the learning rate or warm it up; look at these rows' dense values; no table was changed",
        )
    if other is not None:
        raise PeerStopped(f"step {sent.step}: rank {other} saw a non-finite value")
