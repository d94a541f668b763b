"""Bytes that a table takes, and bytes that each rank spends whatever the plan: the dense part and batches read ahead.

Activations and batches are estimates from mean pooling. Python, and what a GPU's allocator wastes, are not counted:
`sharding.reserve` is for them.

Legend: B samples of this rank, K vectors that interact, D their width.
"""

from itertools import pairwise
from typing import Literal

from dlrmx.plan.shards import TablePlan
from dlrmx.recipe.schema import Dlrm, Recipe, Table

FP32_BYTES = 4
ID_BYTES = 4  # ids travel as int32
STORED_ID_BYTES = 4  # and are read so, if their table has no more rows than that
# Of an id while it is routed: its row, slot, bag, part, target and order as int64, the sorted ones again, the id sent.
ROUTE_ID_BYTES = 10 * 8 + ID_BYTES
# What a step takes and gives back leaves holes in glibc's heap, which keeps them: it grows to so many times what is in
# use at the busiest moment. Set from the workloads of benchmarks/predict.py together. A GPU's allocator has a reserve.
HEAP_TIMES = {"cuda": 1.0, "cpu": 1.5}
# By which a worker that has built nothing grows that trains next to nothing: buffers of libraries and process groups.
WORKER_BYTES = {"cuda": 0, "cpu": 42 << 20}
# Memory for messages to ranks of the same machine (dlrmx.parallel.shared): a message waits to be read while the next is
# written, and each lies in an eighth more than it needs. Set from the same workloads.
SEGMENT_TIMES = 2
DTYPE_BYTES = {"fp32": 4, "fp16": 2}
DENSE_STATE_COPIES = {"sgd": 0, "adagrad": 1, "adamw": 2}
# Weights, gradients, and the flat buffer that is all-reduced.
DENSE_COPIES = 3
# What a rank held back; while thresholds are found, parameters and bits of entries, and three more, as int64.
THRESHOLD_COPIES = 1 + 5 * 2
# Two are ready, a third is being made, one is trained on and the next is on its way.
BATCHES_READ_AHEAD = 5

SparseKind = Literal["sgd", "adagrad", "rowwise_adagrad"]


def table_bytes(table: TablePlan | Table, optimizer: SparseKind) -> int:
    """Weights and optimizer state of one copy of the table; each column slice has row sums of its own."""
    slices = len({strip.col_start for strip in table.strips}) if isinstance(table, TablePlan) else 1
    sums = {"sgd": 0, "adagrad": table.dim, "rowwise_adagrad": max(1, slices)}[optimizer]
    return table.rows * (table.dim * DTYPE_BYTES[table.dtype] + sums * FP32_BYTES)


def dense_layers(recipe: Recipe) -> list[tuple[int, int, bool]]:
    """(inputs, outputs, has a bias) of each matrix of the dense part, in the model's order."""
    model = recipe.model
    dims = [recipe.tables[feature.table].dim for feature in recipe.features.values()]
    num_dense = len(recipe.dense)
    bottom = [(m, n, True) for m, n in pairwise([num_dense, *model.bottom])] if num_dense else []
    widths = [model.bottom[-1], *dims] if num_dense else dims
    cross: list[tuple[int, int, bool]] = []
    top_inputs = sum(widths)
    if not isinstance(model, Dlrm):
        layer = [(top_inputs, model.cross_rank, False), (model.cross_rank, top_inputs, True)]
        cross = layer * model.cross_layers
    elif model.interaction == "dot":
        top_inputs = len(widths) * (len(widths) - 1) // 2 + (widths[0] if num_dense else 0)
    return [*bottom, *cross, *((m, n, True) for m, n in pairwise([top_inputs, *model.top]))]


def parameter_sizes(recipe: Recipe) -> list[int]:
    """Numbers of each matrix and bias of the dense part, in the model's order."""
    return [size for m, n, has_bias in dense_layers(recipe) for size in ([m * n, n] if has_bias else [m * n])]


def num_parameters(recipe: Recipe) -> int:
    """Numbers of the dense part."""
    return sum(parameter_sizes(recipe))


def dense_bytes(recipe: Recipe, world: int, mapped_ranks: int = 0) -> tuple[int, int]:
    """The dense part's parameters with gradients and state, and the activations of the largest local batch.

    mapped_ranks: other ranks whose gradients are read where those have them.
    """
    copies = DENSE_COPIES + DENSE_STATE_COPIES[recipe.optimizer.dense.kind] + mapped_ranks
    if recipe.exchange.threshold.dense is not None:
        copies += THRESHOLD_COPIES
    local_batch = -(-recipe.train.batch // world)
    return num_parameters(recipe) * copies * FP32_BYTES, local_batch * _values_per_row(recipe) * FP32_BYTES


def _values_per_row(recipe: Recipe) -> int:
    """Numbers that the model holds of a sample at the busiest moment of its backward pass."""
    layers, bottom = dense_layers(recipe), len(recipe.model.bottom) if recipe.dense else 0
    if not isinstance(recipe.model, Dlrm):  # a layer keeps its input, and as much again flows back
        return 2 * sum(inputs + outputs for inputs, outputs, _ in layers)
    # Outputs are kept; in the top, two gradients of a layer are there at once. Its input is kept or, where dot products
    # are at work, its gradient is.
    top = [outputs for _, outputs, _ in layers[bottom:]]
    above, below = sum(top) + 2 * max(top), 0
    if recipe.model.interaction == "dot":
        dims = [recipe.tables[feature.table].dim for feature in recipe.features.values()]
        vectors = len(dims) + bool(recipe.dense)
        # (B, K, D) side by side are kept, and have a gradient from either side of the products (B, K, K).
        above, below = above + vectors * dims[0], 3 * vectors * dims[0] + vectors**2
    return sum(outputs for _, outputs, _ in layers[:bottom]) + layers[bottom][0] + max(above, below)


def pipeline_bytes(recipe: Recipe, world: int, ids_per_sample: float, device: Literal["cuda", "cpu"] = "cpu") -> int:
    """Batches of a rank that are read, on their way and trained on: ids, dense values and labels.

    Those of a GPU wait in the host's memory; it has dense values and labels of the one that is trained on. Ids on the
    device are counted where they are routed. Lengths are not counted: where all are one, features share them, and
    elsewhere they are few beside the ids.
    """
    local_batch = -(-recipe.train.batch // world)
    values = FP32_BYTES * (len(recipe.dense) + 1)
    if device == "cuda":
        return local_batch * values
    return int(BATCHES_READ_AHEAD * local_batch * (values + STORED_ID_BYTES * ids_per_sample))


def routing_bytes(recipe: Recipe, world: int, ids_per_sample: float) -> int:
    """What a rank's ids take while they are routed."""
    return int(-(-recipe.train.batch // world) * ids_per_sample * ROUTE_ID_BYTES)
