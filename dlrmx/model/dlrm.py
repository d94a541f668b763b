"""DLRM: bottom MLP, interaction of its output with the pooled vectors, top MLP.

Letters: B batch rows, N dense columns, F features, D embedding dim, K interacting vectors.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dlrmx.model.mlp import mlp


class _PairwiseDots(torch.autograd.Function):
    """Dot products of pairs, whose gradient is one product of matrices: autograd would take two and their sum."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, pairs: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, place)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        vectors, place = ctx.saved_tensors
        num_vectors = vectors.shape[1]
        with_zero = nn.functional.pad(gradient, (0, 1))
        symmetric = with_zero.index_select(1, place).view(-1, num_vectors, num_vectors)  # (B, K, K)
        return torch.bmm(symmetric, vectors), None, None


class DotInteraction(nn.Module):
    """Dot products of all pairs of vectors, each pair once and no vector with itself.

    Order of the pairs as in facebookresearch/dlrm: (1, 0), (2, 0), (2, 1), (3, 0), ...
    """

    pairs: Tensor  # of each pair the place of its product in (K, K), flat
    place: Tensor  # (K * K,) of each product its pair, the same for both orders; one past the last on the diagonal

    def __init__(self, num_vectors: int) -> None:
        super().__init__()
        rows, columns = torch.tril_indices(num_vectors, num_vectors, offset=-1)
        place = torch.full((num_vectors, num_vectors), len(rows))
        place[rows, columns] = place[columns, rows] = torch.arange(len(rows))
        self.register_buffer("pairs", rows * num_vectors + columns, persistent=False)
        self.register_buffer("place", place.view(-1), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, K, D) -> (B, K (K - 1) / 2)."""
        device = vectors.device.type
        if torch.is_autocast_enabled(device):  # which does not see into the function
            vectors = vectors.to(torch.get_autocast_dtype(device))
        products: Tensor = _PairwiseDots.apply(vectors, self.pairs, self.place)  # type: ignore[no-untyped-call]
        return products


class DlrmModel(nn.Module):
    """Without dense columns (N = 0) there is no bottom MLP, and the embeddings interact among themselves."""

    def __init__(
        self, *, bottom: Sequence[int], top: Sequence[int], dot: bool, dense_dim: int, dims: Sequence[int]
    ) -> None:
        super().__init__()
        self.bottom = mlp(dense_dim, bottom, last_relu=True) if dense_dim else None
        widths = [bottom[-1], *dims] if dense_dim else list(dims)
        self.interaction = DotInteraction(len(widths)) if dot else None
        if dot:
            assert len(set(widths)) == 1, f"dot interaction needs one dim, got {widths}"
            num_pairs = len(widths) * (len(widths) - 1) // 2
            top_inputs = num_pairs + (widths[0] if dense_dim else 0)
        else:
            top_inputs = sum(widths)
        assert top_inputs > 0, "one feature and no dense column: nothing to interact"
        self.top = mlp(top_inputs, top, last_relu=False)

    def forward(self, dense: Tensor, pooled: Sequence[Tensor]) -> Tensor:
        """dense (B, N), pooled F x (B, D_f) -> logits (B,)."""
        return self.above(None if self.bottom is None else self.bottom(dense), pooled)

    def above(self, first: Tensor | None, pooled: Sequence[Tensor]) -> Tensor:
        """What comes above the bottom MLP: its output (B, D), pooled F x (B, D_f) -> logits (B,)."""
        vectors = list(pooled) if first is None else [first, *pooled]
        if self.interaction is None:
            interacted = torch.cat(vectors, dim=1)
        else:
            products = self.interaction(torch.stack(vectors, dim=1))
            interacted = products if first is None else torch.cat([vectors[0], products], dim=1)
        logits: Tensor = self.top(interacted)
        return logits.squeeze(1)
