"""The bytes that a plan takes on each rank: table weights, optimizer state, the dense part and the exchange.

Weights and state are exact. The dense part's activations and the exchange's buffers are estimates from mean pooling;
Python, torch and the allocator's waste are not counted: `sharding.reserve` is for them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol

from dlrmx.plan.shards import Plan, Rectangle, TablePlan
from dlrmx.recipe.schema import Dlrm, Recipe, Synthetic, Table

FP32_BYTES = 4
ID_BYTES = 4  # ids travel as int32
DTYPE_BYTES = {"fp32": 4, "fp16": 2}
DENSE_STATE_COPIES = {"sgd": 0, "adagrad": 1, "adamw": 2}
# Weights, gradients, and the flat buffer that is all-reduced.
DENSE_COPIES = 3

SparseKind = Literal["sgd", "adagrad", "rowwise_adagrad"]


class FeatureFacts(Protocol):
    """What the planner reads of one feature in a prepared dataset's manifest."""

    @property
    def mean_pooling(self) -> float: ...


class Facts(Protocol):
    """What the planner reads of a prepared dataset's manifest (dlrmx.data.manifest.Manifest is one)."""

    @property
    def features(self) -> Mapping[str, FeatureFacts]: ...


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one rank."""

    weights_bytes: int = 0
    state_bytes: int = 0
    dense_bytes: int = 0
    exchange_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.state_bytes + self.dense_bytes + self.exchange_bytes

    def __add__(self, other: "RankMemory") -> "RankMemory":
        return RankMemory(
            self.weights_bytes + other.weights_bytes,
            self.state_bytes + other.state_bytes,
            self.dense_bytes + other.dense_bytes,
            self.exchange_bytes + other.exchange_bytes,
        )


def table_bytes(table: TablePlan | Table, optimizer: SparseKind) -> int:
    """Weights and optimizer state of one copy of the table; each column slice has row sums of its own."""
    slices = len({strip.col_start for strip in table.strips}) if isinstance(table, TablePlan) else 1
    sums = {"sgd": 0, "adagrad": table.dim, "rowwise_adagrad": max(1, slices)}[optimizer]
    return table.rows * (table.dim * DTYPE_BYTES[table.dtype] + sums * FP32_BYTES)


def poolings(recipe: Recipe, facts: Facts | None) -> dict[str, list[float]]:
    """Per table the mean ids per sample of each of its features: from the facts, else from the recipe, else 1."""
    planted = recipe.data.pooling if isinstance(recipe.data, Synthetic) else {}
    found: dict[str, list[float]] = {name: [] for name in recipe.tables}
    for name, feature in recipe.features.items():
        said = planted[name].mean if name in planted else float(feature.expand)
        found[feature.table].append(facts.features[name].mean_pooling if facts else said)
    return found


# ----------------------------------------------------------------------------------------- a table


def rectangle_memory(
    rectangle: Rectangle, table: TablePlan, means: Sequence[float], *, batch: int, optimizer: SparseKind
) -> RankMemory:
    """What a rectangle takes on its rank: its weights and state, and the bags that all ranks send it.

    `means` are the table's features' mean poolings. A bag touches the rectangle with probability
    min(1, pooling x share of the rows): ids are permuted, so rows are hit evenly.
    """
    weights = rectangle.rows * rectangle.cols * DTYPE_BYTES[table.dtype]
    sums = {"sgd": 0, "adagrad": rectangle.cols, "rowwise_adagrad": 1}[optimizer]
    share = rectangle.rows / table.rows
    num_bags = sum(batch * min(1.0, mean * share) for mean in means)
    num_ids = sum(batch * mean * share for mean in means)
    # Sums out and gradients in; ids as they came and as rows of the fused table.
    exchange = 2 * num_bags * rectangle.cols * FP32_BYTES + 2 * num_ids * ID_BYTES
    return RankMemory(weights, rectangle.rows * sums * FP32_BYTES, 0, math.ceil(exchange))


def replica_memory(table: TablePlan, optimizer: SparseKind) -> RankMemory:
    """What a data_parallel table takes on every rank: weights, state, gradient and its part of the flat buffer."""
    values = table.rows * table.dim
    weights = values * DTYPE_BYTES[table.dtype]
    return RankMemory(weights, table_bytes(table, optimizer) - weights, 2 * values * FP32_BYTES, 0)


def sender_memory(table: TablePlan, means: Sequence[float], *, local_batch: int) -> RankMemory:
    """What a cut table takes on every rank as the owner of samples: ids out, sums back, gradients out."""
    row_parts = max(min(strip.num_ranks, table.rows) for strip in table.strips)
    slices = len({strip.col_start for strip in table.strips})
    vectors = sum(local_batch * min(mean, row_parts) * table.dim for mean in means)
    ids = sum(local_batch * mean * slices for mean in means)
    return RankMemory(exchange_bytes=math.ceil(2 * vectors * FP32_BYTES + ids * ID_BYTES))


# ------------------------------------------------------------------------------------ the dense part


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


def dense_memory(recipe: Recipe, *, world: int) -> RankMemory:
    """Parameters with gradients and optimizer state, and the activations of the largest local batch with theirs."""
    layers = dense_layers(recipe)
    parameters = sum(inputs * outputs + outputs * has_bias for inputs, outputs, has_bias in layers)
    copies = DENSE_COPIES + DENSE_STATE_COPIES[recipe.optimizer.dense.kind]
    # A layer keeps its input for the backward pass, and as much again flows back.
    values_per_row = 2 * sum(inputs + outputs for inputs, outputs, _ in layers)
    local_batch = -(-recipe.train.batch // world)
    return RankMemory(dense_bytes=(parameters * copies + local_batch * values_per_row) * FP32_BYTES)


# ------------------------------------------------------------------------------------ the whole plan


def rank_memory(plan: Plan, recipe: Recipe, facts: Facts | None = None) -> list[RankMemory]:
    """Bytes on each of the plan's ranks, in their order."""
    batch, optimizer = recipe.train.batch, recipe.optimizer.sparse.kind
    local_batch = -(-batch // plan.world)
    everywhere = dense_memory(recipe, world=plan.world)
    own = [RankMemory()] * plan.world
    means = poolings(recipe, facts)
    for name, table in plan.tables.items():
        if not table.strips:
            everywhere += replica_memory(table, optimizer)
            continue
        everywhere += sender_memory(table, means[name], local_batch=local_batch)
        for rectangle in table.rectangles(name):
            own[rectangle.rank] += rectangle_memory(rectangle, table, means[name], batch=batch, optimizer=optimizer)
    return [everywhere + rank for rank in own]
