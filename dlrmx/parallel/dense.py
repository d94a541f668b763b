"""The dense part: all its parameters in one flat buffer, all its gradients in another, summed over all ranks.

DistributedDataParallel regroups its buckets after the first step, which changes the order of additions: ten steps
and ten more would not equal twenty. Here pieces are cut by parameter order and size alone, and start in one order, the
last parameters first, each as soon as the backward pass is through with it. All optimizers offered are element-wise, so
that one flat parameter gives what many would.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from dlrmx.parallel.codec import Codec, Fp32
from dlrmx.parallel.coded_sum import PendingCodedSum, start_coded_sum
from dlrmx.parallel.sparse_sum import PendingSparseSum, SparseSum
from dlrmx.parallel.wire import Pending, Wire
from dlrmx.recipe.schema import DenseOptimizer

PIECE_BYTES = 8 * 2**20  # smaller messages cost more than what hides them gives


@dataclass(frozen=True)
class Piece:
    """Parameters [first, last), and the part of the buffer that their gradients take."""

    first: int
    last: int
    buffer: torch.Tensor


@dataclass(frozen=True)
class PendingPieces:
    """Sums under way."""

    pieces: tuple[Pending | PendingSparseSum | PendingCodedSum, ...]

    def wait(self) -> None:
        for piece in self.pieces:
            piece.wait()


class DensePart:
    """A plain model's parameters, flat, with room for the gradients of replicated tables behind them."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: DenseOptimizer,
        *,
        extra: int,
        sparse: SparseSum | None = None,
        codec: Codec | None = None,
        wire: Wire | None = None,
    ) -> None:
        """extra: gradients of replicated tables. codec: the wire format of what is not sparse, fp32 by default.

        wire: the one that sums will be started on, if it is known; the gradients then lie where it likes them.
        Collective.
        """
        named = list(model.named_parameters())
        device = named[0][1].device if named else torch.device("cpu")
        total = sum(parameter.numel() for _, parameter in named)
        self._base_rate, self._kind = optimizer.lr, optimizer.kind
        size = total + extra
        self.buffer = torch.zeros(size, device=device) if wire is None else wire.buffer(size, device)
        self.gradient, self.extra = self.buffer[:total], self.buffer[total:]
        self._flat = nn.Parameter(torch.empty(total, device=device))
        self._flat.grad = self.gradient
        self._shapes: dict[str, tuple[int, torch.Size]] = {}
        start = 0
        for index, (name, parameter) in enumerate(named):
            self._shapes[name] = (start, parameter.shape)
            view = self._flat.data[start : start + parameter.numel()].view(parameter.shape)
            parameter.data = view.copy_(parameter.data)
            parameter.register_post_accumulate_grad_hook(partial(self._take, index))
            start += parameter.numel()
        self._gradients = [gradient for _, gradient in self._views(self.gradient)]
        self._optimizer = _make(optimizer, self._flat)
        self.sparse, self._codec = sparse, codec or Fp32()
        whole = sparse is not None or not isinstance(self._codec, Fp32)
        self._pieces = () if whole else tuple(_pieces(self._gradients, self.gradient))
        self.begin()

    def begin(self, wire: Wire | None = None, *, passes: int = 1) -> None:
        """Forget the last step's gradients. Those of this step come in so many passes; their sums start on `wire`."""
        self._wire, self._passes = wire, passes
        self._taken = [0] * len(self._gradients)
        self._bad: set[int] = set()
        self._started: list[Pending] = []

    def _take(self, index: int, parameter: torch.Tensor) -> None:
        """Add a gradient to the flat ones, as soon as autograd has it: nothing is zeroed first, and it is at hand."""
        assert parameter.grad is not None
        into = self._gradients[index]
        if self._taken[index]:
            into.add_(parameter.grad)
        else:
            into.copy_(parameter.grad)
        parameter.grad = None
        self._taken[index] += 1
        if not all_finite(into):
            self._bad.add(index)
        while self._wire is not None and len(self._started) < len(self._pieces):
            piece = self._pieces[len(self._started)]
            if min(self._taken[piece.first : piece.last]) < self._passes:
                break
            self._started.append(self._wire.all_reduce("dense", piece.buffer))

    def not_finite(self) -> str | None:
        """The first parameter whose gradient on this rank has a NaN or an infinity in it, if any."""
        return list(self._shapes)[min(self._bad)] if self._bad else None

    def start_sum(self, wire: Wire, *, step: int) -> PendingPieces | Pending | PendingCodedSum:
        """Start summing all gradients that are not on their way, replicated tables' included, over all ranks.

        Sums of what is over a threshold are for the most part done when they are waited for: that takes several
        messages, each of what came before. Collective.
        """
        for taken, gradient in zip(self._taken, self._gradients, strict=True):
            if not taken:
                gradient.zero_()
        if self.sparse is not None:
            return PendingPieces((self.sparse.start(self.gradient, step=step), self._start(self.extra, wire)))
        if not self._pieces:
            return self._start(self.buffer, wire)
        for piece in self._pieces[len(self._started) :]:
            self._started.append(wire.all_reduce("dense", piece.buffer))
        if len(self.extra):
            self._started.append(wire.all_reduce("dense", self.extra))
        return PendingPieces(tuple(self._started))

    def _start(self, buffer: torch.Tensor, wire: Wire) -> Pending | PendingCodedSum:
        if isinstance(self._codec, Fp32):
            return wire.all_reduce("dense", buffer)
        return start_coded_sum(buffer, self._codec, wire)

    def residuals(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What this rank held back of each parameter's gradient, to save or to fill; nothing without a threshold."""
        if self.sparse is not None:
            yield from self._views(self.sparse.residual)

    def step(self, factor: float) -> None:
        """Apply the optimizer at `factor` times the recipe's rate."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._base_rate * factor
        self._optimizer.step()

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every parameter under its name: views of the flat buffer, to be saved or filled."""
        yield from self._views(self._flat.data)

    def optimizer_state(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The optimizer's state as `<parameter>/<slot>` views, and AdamW's step count as `step`; to save or to fill."""
        for slot, value in self._optimizer.state[self._flat].items():
            if value.dim() == 1:
                yield from ((f"{name}/{slot}", view) for name, view in self._views(value))
            elif self._kind == "adamw":  # the others count steps too, and do nothing with them
                yield slot, value

    def _views(self, flat: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        for name, (start, shape) in self._shapes.items():
            yield name, flat[start : start + shape.numel()].view(shape)


def _make(settings: DenseOptimizer, flat: nn.Parameter) -> torch.optim.Optimizer:
    if settings.kind == "sgd":
        return torch.optim.SGD([flat], lr=settings.lr)
    if settings.kind == "adagrad":
        return torch.optim.Adagrad([flat], lr=settings.lr, eps=settings.eps)
    optimizer = torch.optim.AdamW([flat], lr=settings.lr, eps=settings.eps, weight_decay=settings.weight_decay)
    # AdamW makes its state in its first step; a resumed run needs it before.
    optimizer.state[flat] = {
        "step": torch.zeros(()),
        "exp_avg": torch.zeros_like(flat),
        "exp_avg_sq": torch.zeros_like(flat),
    }
    return optimizer


def _pieces(gradients: Sequence[torch.Tensor], flat: torch.Tensor) -> Iterator[Piece]:
    """Cut flat gradients into pieces of whole parameters, from the last to the first; none where there would be one."""
    last, end, start = len(gradients), len(flat), len(flat)
    for first in reversed(range(len(gradients))):
        start -= gradients[first].numel()
        large = (end - start) * flat.element_size() >= PIECE_BYTES
        if large and start * flat.element_size() >= PIECE_BYTES or first == 0 and end < len(flat):
            yield Piece(first, last, flat[start:end])
            last, end = first, start


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether there is no NaN and no infinity: by a sum, which is 30 times cheaper than a look at each number."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())
