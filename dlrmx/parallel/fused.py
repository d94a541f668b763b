"""A fused table: one fbgemm table that holds rectangles one under the other, with its optimizer in the backward pass.

fbgemm repairs bad ids silently, reads garbage behind bad offsets and does not notice offsets of a wrong length, so
ids and offsets are checked here, before every kernel, and its own check is off.
"""

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from dlrmx.parallel.pages import use_huge_pages
from dlrmx.recipe.schema import SparseOptimizer

OPTIMIZERS = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}
PRECISIONS = {"fp32": SparseType.FP32, "fp16": SparseType.FP16}
# Where a GPU's table lies, by tier: device memory, host memory behind a cache, or host memory.
LOCATIONS = {
    "hbm": EmbeddingLocation.DEVICE,
    "uvm_caching": EmbeddingLocation.MANAGED_CACHING,
    "uvm": EmbeddingLocation.MANAGED,
}


class FusedTable:
    """`rows` x `width` weights and their optimizer state; pooling is always a sum."""

    def __init__(
        self,
        rows: int,
        width: int,
        dtype: str,
        optimizer: SparseOptimizer,
        device: torch.device,
        *,
        tier: str = "hbm",
        cache_ratio: float = 0.0,
    ) -> None:
        """tier: of memory; of a "uvm_caching" table the part `cache_ratio` of the rows is kept in device memory."""
        self.rows, self.width, self.optimizer = rows, width, optimizer
        on_gpu, self._cached = device.type == "cuda", tier == "uvm_caching"
        assert on_gpu or tier == "hbm", f"tier {tier} on {device}"
        # A table of 0 rows makes fbgemm read outside of it, so a rank that holds nothing gets one unused row.
        self._kernel = SplitTableBatchedEmbeddingBagsCodegen(
            [
                (
                    max(rows, 1),
                    width,
                    LOCATIONS[tier] if on_gpu else EmbeddingLocation.HOST,
                    ComputeDevice.CUDA if on_gpu else ComputeDevice.CPU,
                )
            ],
            optimizer=OPTIMIZERS[optimizer.kind],
            learning_rate=optimizer.lr,
            eps=optimizer.eps,
            weights_precision=PRECISIONS[dtype],
            output_dtype=SparseType.FP32,
            pooling_mode=PoolingMode.SUM,
            bounds_check_mode=BoundsCheckMode.NONE,
            stochastic_rounding=False,
            cache_load_factor=cache_ratio,
            device=device,
        )
        if not on_gpu:
            for zeros in (self.weight, self.state):
                if zeros is not None:
                    use_huge_pages(zeros)

    @property
    def weight(self) -> torch.Tensor:
        """The (rows, width) weights themselves, not a copy. To be filled before the first look-up only."""
        if self._cached:
            self._kernel.flush()
        weights: torch.Tensor = self._kernel.split_embedding_weights()[0]
        return weights[: self.rows]

    @property
    def state(self) -> torch.Tensor | None:
        """The optimizer's sums: (rows, width) for adagrad, (rows,) for rowwise_adagrad, None for sgd."""
        if self.optimizer.kind == "sgd":
            return None
        sums: torch.Tensor = self._kernel.split_optimizer_states()[0][0]
        shape = (-1, self.width) if self.optimizer.kind == "adagrad" else (-1,)
        return sums.view(shape)[: self.rows]

    def set_learning_rate(self, rate: float) -> None:
        """The rate of updates to come: fbgemm reads it in the look-up, not in the backward pass."""
        self._kernel.set_learning_rate(rate)

    def look_up(self, ids: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
        """Sum the rows of each bag.

        ids (n,) int32 rows of this table; offsets (bags + 1,) int32; weights (n,) fp32 or None -> (bags, width) fp32.
        Its backward pass applies the optimizer to the rows at once.
        """
        self._check(ids, offsets, weights)
        pooled: torch.Tensor = self._kernel(ids, offsets, per_sample_weights=weights)
        return pooled

    def _check(self, ids: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor | None) -> None:
        assert weights is None or weights.shape == ids.shape, (weights, ids.shape)
        assert int(offsets[0]) == 0 and int(offsets[-1]) == ids.numel(), (offsets[-1], ids.numel())
        if ids.numel():
            low, high = torch.aminmax(ids)
            assert 0 <= int(low) <= int(high) < self.rows, f"row {int(low)}..{int(high)} of {self.rows}"
            assert bool((offsets[1:] >= offsets[:-1]).all()), "offsets decrease"
