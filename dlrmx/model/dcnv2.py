"""DLRM-DCNv2: bottom MLP, low-rank cross network over all vectors side by side, top MLP.

Letters: B batch rows, N dense columns, F features, D_f embedding dim of feature f,
C = bottom output + sum of D_f: the width of the cross network.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dlrmx.model.mlp import mlp


class _Crossed(torch.autograd.Function):
    """x + first * up. torch's own gradient multiplies both by 1 before: four passes over (B, C) instead of two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, first: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(first, up)
        return torch.addcmul(x, first, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, up = ctx.saved_tensors
        return gradient, gradient * up, gradient * first


class CrossLayer(nn.Module):
    """x_{l+1} = x_0 * (W (V x_l) + b) + x_l with W (C, rank) and V (rank, C)."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)  # V
        self.up = nn.Linear(rank, width)  # W and b

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        """first x_0 (B, C), x x_l (B, C) -> x_{l+1} (B, C)."""
        crossed: Tensor = _Crossed.apply(x, first, self.up(self.down(x)))  # type: ignore[no-untyped-call]
        return crossed


class Dcnv2Model(nn.Module):
    """Without dense columns (N = 0) there is no bottom MLP, and the embeddings cross among themselves."""

    def __init__(
        self,
        *,
        bottom: Sequence[int],
        top: Sequence[int],
        cross_layers: int,
        cross_rank: int,
        dense_dim: int,
        dims: Sequence[int],
    ) -> None:
        super().__init__()
        self.bottom = mlp(dense_dim, bottom, last_relu=True) if dense_dim else None
        width = sum(dims) + (bottom[-1] if dense_dim else 0)
        self.cross = nn.ModuleList(CrossLayer(width, cross_rank) for _ in range(cross_layers))
        self.top = mlp(width, top, last_relu=False)

    def forward(self, dense: Tensor, pooled: Sequence[Tensor]) -> Tensor:
        """dense (B, N), pooled F x (B, D_f) -> logits (B,)."""
        return self.above(None if self.bottom is None else self.bottom(dense), pooled)

    def above(self, bottom: Tensor | None, pooled: Sequence[Tensor]) -> Tensor:
        """What comes above the bottom MLP: its output, pooled F x (B, D_f) -> logits (B,)."""
        vectors = list(pooled) if bottom is None else [bottom, *pooled]
        first = crossed = torch.cat(vectors, dim=1)
        for layer in self.cross:
            crossed = layer(first, crossed)
        logits: Tensor = self.top(crossed)
        return logits.squeeze(1)
