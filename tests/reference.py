"""The truth that every sharding is held to: the whole model and all tables in one process, in plain torch.

Nothing is fused, cut or cached here. Each table is one tensor whose dense gradient comes from autograd, and each
optimizer of the tables is its textbook formula, so that duplicates within a batch are summed first.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from dlrmx.data.batches import Bags, Batch
from dlrmx.model.build import build_model
from dlrmx.model.initial import initial_block
from dlrmx.recipe.schema import DenseOptimizer, Recipe, SparseOptimizer


class Reference:
    """A recipe's model, tables and optimizers, trained without any sharding.

    `tables` maps each table to its weights (rows, dim), fp16 where the recipe says so, else in `dtype`; `state`
    maps "table/<name>/adagrad.sum" (rows, dim) or "table/<name>/rowwise_adagrad.sum" (rows,) to the optimizer's
    sums. Both may be read and assigned. All arithmetic is in `dtype`.
    """

    def __init__(self, recipe: Recipe, dense_dim: int, dtype: torch.dtype = torch.float32) -> None:
        self.recipe = recipe
        self.dtype = dtype
        dims = [recipe.tables[feature.table].dim for feature in recipe.features.values()]
        self.model = build_model(recipe.model, dense_dim=dense_dim, dims=dims, seed=recipe.seed).to(dtype)
        self.dense_optimizer = _dense_optimizer(recipe.optimizer.dense, list(self.model.parameters()))
        self.tables: dict[str, Tensor] = {}
        self.state: dict[str, Tensor] = {}
        for name, table in recipe.tables.items():
            stored = torch.float16 if table.dtype == "fp16" else torch.float32
            values = initial_block(recipe.seed, name, table.rows, 0, table.rows, 0, table.dim, dtype=stored)
            self.tables[name] = values if table.dtype == "fp16" else values.to(dtype)
            if recipe.optimizer.sparse.kind == "adagrad":
                self.state[f"table/{name}/adagrad.sum"] = torch.zeros(table.rows, table.dim, dtype=dtype)
            elif recipe.optimizer.sparse.kind == "rowwise_adagrad":
                self.state[f"table/{name}/rowwise_adagrad.sum"] = torch.zeros(table.rows, dtype=dtype)

    def step(self, batch: Batch, lr_factor: float = 1.0) -> float:
        """Train on one global batch of G rows with both rates times `lr_factor`; returns the mean loss before it."""
        weights = {name: table.to(self.dtype, copy=True).requires_grad_() for name, table in self.tables.items()}
        loss = self._loss(self._logits(batch, weights), batch)
        self.dense_optimizer.zero_grad()
        torch.autograd.backward(loss)
        for group in self.dense_optimizer.param_groups:
            group["lr"] = self.recipe.optimizer.dense.lr * lr_factor
        self.dense_optimizer.step()
        for name, weight in weights.items():
            if weight.grad is not None:  # None where no feature uses the table
                self._update_table(name, weight.detach(), weight.grad, lr_factor)
        return loss.item()

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """Logits (B,) of a batch."""
        return self._logits(batch, {name: table.to(self.dtype) for name, table in self.tables.items()})

    def pooled(self, batch: Batch, weights: dict[str, Tensor]) -> list[Tensor]:
        """Per feature in the recipe's order, its pooled vectors (B, D_f), given each table's weights in `dtype`."""
        return [
            pool(weights[feature.table], batch.bags[name], mean=feature.pooling == "mean")
            for name, feature in self.recipe.features.items()
        ]

    def _logits(self, batch: Batch, weights: dict[str, Tensor]) -> Tensor:
        dense = torch.from_numpy(batch.dense).to(self.dtype)
        logits: Tensor = self.model(dense, self.pooled(batch, weights))
        return logits

    def _loss(self, logits: Tensor, batch: Batch) -> Tensor:
        labels = torch.from_numpy(batch.labels).to(self.dtype)
        return binary_cross_entropy_with_logits(logits, labels, reduction="sum") / len(batch.labels)

    def _update_table(self, name: str, weight: Tensor, gradient: Tensor, lr_factor: float) -> None:
        optimizer = self.recipe.optimizer.sparse
        state = self.state.get(f"table/{name}/{optimizer.kind}.sum")
        update_table(weight, gradient, state, optimizer, lr=optimizer.lr * lr_factor)
        self.tables[name] = weight.to(self.tables[name].dtype)  # fp16: rounded to nearest


def pool(weight: Tensor, bags: Bags, *, mean: bool) -> Tensor:
    """The (weighted) sum of each bag's rows of `weight` (rows, D), over its number of ids for mean: (B, D).

    An empty bag gives zeros. Mean with weights is the weighted sum over the number of ids.
    """
    lengths = torch.from_numpy(bags.lengths).to(torch.int64)
    vectors = weight[torch.from_numpy(bags.ids)]  # (n, D)
    if bags.weights is not None:
        vectors = vectors * torch.from_numpy(bags.weights).to(weight.dtype)[:, None]
    bag_of_id = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    pooled = torch.zeros(len(lengths), weight.shape[1], dtype=weight.dtype).index_add(0, bag_of_id, vectors)
    return pooled / lengths.clamp(min=1)[:, None] if mean else pooled


def update_table(weight: Tensor, gradient: Tensor, state: Tensor | None, kind: SparseOptimizer, *, lr: float) -> None:
    """One exact step of the tables' optimizer on all rows, in place; rows without a gradient stay as they are."""
    if kind.kind == "sgd":
        weight -= lr * gradient
        return
    assert state is not None
    if kind.kind == "adagrad":
        state += gradient**2
        weight -= lr * gradient / (state.sqrt() + kind.eps)
    else:
        state += (gradient**2).mean(dim=1)
        weight -= lr * gradient / (state.sqrt() + kind.eps)[:, None]


def _dense_optimizer(kind: DenseOptimizer, parameters: list[Tensor]) -> torch.optim.Optimizer:
    match kind.kind:
        case "sgd":
            return torch.optim.SGD(parameters, lr=kind.lr)
        case "adagrad":
            return torch.optim.Adagrad(parameters, lr=kind.lr, eps=kind.eps)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=kind.lr, eps=kind.eps, weight_decay=kind.weight_decay)
