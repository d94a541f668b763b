"""The dense part: all its parameters in one flat buffer, all its gradients in another, one all-reduce a step.

DistributedDataParallel regroups its buckets after the first step, which changes the order of additions: ten steps
and ten more would not equal twenty. Here parameter order is the only order. All optimizers offered are element-wise,
so that one flat parameter gives what many would.
"""

from collections.abc import Iterator

import torch
from torch import nn

from dlrmx.parallel.codec import Codec, Fp32
from dlrmx.parallel.coded_sum import PendingCodedSum, start_coded_sum
from dlrmx.parallel.sparse_sum import SparseSum
from dlrmx.parallel.wire import Pending, Wire
from dlrmx.recipe.schema import DenseOptimizer


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
    ) -> None:
        """extra: gradients of replicated tables. codec: the wire format of what is not sparse, fp32 by default."""
        named = list(model.named_parameters())
        device = named[0][1].device if named else torch.device("cpu")
        total = sum(parameter.numel() for _, parameter in named)
        self._base_rate, self._kind = optimizer.lr, optimizer.kind
        self.buffer = torch.zeros(total + extra, device=device)
        self.gradient, self.extra = self.buffer[:total], self.buffer[total:]
        self._flat = nn.Parameter(torch.empty(total, device=device))
        self._flat.grad = self.gradient
        self._shapes: dict[str, tuple[int, torch.Size]] = {}
        start = 0
        for name, parameter in named:
            self._shapes[name] = (start, parameter.shape)
            view = self._flat.data[start : start + parameter.numel()].view(parameter.shape)
            parameter.data = view.copy_(parameter.data)
            parameter.grad = self.gradient[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()
        self._optimizer = _make(optimizer, self._flat)
        self.sparse, self._codec = sparse, codec or Fp32()

    def zero(self) -> None:
        """Forget the last step's gradients."""
        self.buffer.zero_()

    def start_sum(self, wire: Wire, *, step: int) -> Pending | PendingCodedSum:
        """Start summing all gradients, replicated tables' included, over all ranks. Collective.

        What is sent over a threshold alone is summed at once: it takes several messages, each of what came before.
        """
        if self.sparse is None:
            return self._start(self.buffer, wire)
        self.sparse.sum(self.gradient, step=step)
        return self._start(self.extra, wire)

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

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every gradient under its parameter's name."""
        yield from self._views(self.gradient)

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
