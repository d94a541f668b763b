"""Bytes that a table takes, and bytes that each rank spends whatever the plan: the dense part and batches read ahead.

Activations and batches are estimates from mean pooling; Python, torch and the allocator's waste are not counted:
`sharding.reserve` is for them.
"""

from itertools import pairwise
from typing import Literal

from dlrmx.plan.shards import TablePlan
from dlrmx.recipe.schema import Dlrm, Recipe, Table

FP32_BYTES = 4
ID_BYTES = 4  # ids travel as int32
STORED_ID_BYTES = 8  # and are read as int64
DTYPE_BYTES = {"fp32": 4, "fp16": 2}
DENSE_STATE_COPIES = {"sgd": 0, "adagrad": 1, "adamw": 2}
# Weights, gradients, and the flat buffer that is all-reduced.
DENSE_COPIES = 3
BATCHES_READ_AHEAD = 2

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


def num_parameters(recipe: Recipe) -> int:
    """Parameters of the dense part."""
    return sum(inputs * outputs + outputs * has_bias for inputs, outputs, has_bias in dense_layers(recipe))


def dense_bytes(recipe: Recipe, world: int) -> tuple[int, int]:
    """The dense part's parameters with gradients and state, and the activations of the largest local batch."""
    copies = DENSE_COPIES + DENSE_STATE_COPIES[recipe.optimizer.dense.kind]
    # A layer keeps its input for the backward pass, and as much again flows back.
    values_per_row = 2 * sum(inputs + outputs for inputs, outputs, _ in dense_layers(recipe))
    local_batch = -(-recipe.train.batch // world)
    return num_parameters(recipe) * copies * FP32_BYTES, local_batch * values_per_row * FP32_BYTES


def pipeline_bytes(recipe: Recipe, world: int, ids_per_sample: float) -> int:
    """Batches of a rank that are read while another is trained on: ids, lengths, dense values and labels."""
    local_batch = -(-recipe.train.batch // world)
    numbers = FP32_BYTES * (len(recipe.dense) + 1) + STORED_ID_BYTES * (ids_per_sample + len(recipe.features))
    return int(BATCHES_READ_AHEAD * local_batch * numbers)
