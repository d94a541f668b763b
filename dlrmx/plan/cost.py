"""Predicts a plan: memory and time of each rank, the step's time, bytes by link, cost by table."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlrmx.plan.facts import Facts
from dlrmx.plan.memory import (
    FP32_BYTES,
    HEAP_TIMES,
    dense_bytes,
    dense_layers,
    num_parameters,
    parameter_sizes,
    pipeline_bytes,
    routing_bytes,
)
from dlrmx.plan.pieces import SECONDS, STAGES, Column, all_reduce_bytes, replicas
from dlrmx.plan.prediction import Cargo, Link, Prediction, RankMemory, Stages, TableCost, Traffic
from dlrmx.plan.rates import all_reduce_seconds, rates
from dlrmx.plan.shards import Plan
from dlrmx.plan.spread import Strips, on_ranks, strip_costs, strips_of
from dlrmx.plan.style import FEWEST, NUMBER_BYTES, Style, finding_bytes, style_of, travelling_bytes
from dlrmx.plan.topology import Topology
from dlrmx.plan.workload import Bools, Floats, Workload, read_workload
from dlrmx.recipe.schema import Dlrm, Recipe

OPS_PER_LAYER = 2  # the product, and bias with activation
DOT_PASSES = 4  # over the vectors that interact
UPDATE_SHARE = 0.3  # of what a step takes whatever is in it; the rest is where ids are routed
BACKWARD_TIMES = 4  # what interacts is joined and multiplied once, and its gradients are twice, and added up
COLLECTIVES = {"ids": 2, "vectors": 1, "gradients": 1, "all_reduce": 1}  # a step's; the counts go before the ids
# Places of stages in Stages: the update and the next step's ids, look-up and vectors, the dense part, gradients.
STRETCHES = ([7, 0], [1, 2], [3, 4, 5], [6])
MEMORY_COLUMNS = (Column.WEIGHTS, Column.STATE, Column.EXCHANGE, Column.HOST_WEIGHTS, Column.HOST_STATE)
CARGO: tuple[tuple[Link, Cargo, Column], ...] = (
    ("up", "ids", Column.IDS_UP),
    ("out", "ids", Column.IDS_OUT),
    ("up", "vectors", Column.VECTORS_UP),
    ("out", "vectors", Column.VECTORS_OUT),
    ("up", "gradients", Column.GRADIENTS_UP),
    ("out", "gradients", Column.GRADIENTS_OUT),
    ("host", "cache", Column.CACHE),
)


@dataclass(frozen=True)
class DenseCost:
    """Seconds of a rank's dense part: forward, of that the bottom MLP (its backward pass takes twice as long),
    backward, the update of its parameters, and what a step takes whatever is in it."""

    forward_s: float
    bottom_s: float
    backward_s: float
    update_s: float
    fixed_s: float
    all_reduce_bytes: float


def predict(
    plan: Plan, recipe: Recipe, topology: Topology, facts: Facts | None = None, *, style: Style | None = None
) -> Prediction:
    """What a step of the plan costs on `topology`, which has the plan's number of ranks; by default in our exchange."""
    assert plan.world == topology.world, (plan.world, topology.world)
    style = style or style_of(recipe)
    workload = read_workload(recipe, facts)
    strips, first_rank = strips_of(plan, workload)
    optimizer = recipe.optimizer.sparse.kind
    larger, smaller = strip_costs(strips, workload, topology, optimizer, style)
    ranks = on_ranks(strips, first_rank, larger, smaller, topology.world)
    owner = _owner_costs(strips, larger, smaller)
    ranks[:, [Column.OWNER_IDS, Column.OWNER_VECTORS, Column.OWNER_BYTES]] = owner.sum(axis=0)
    replica = replicas(workload, topology, optimizer)
    is_replica = np.array([not plan.tables[name].strips for name in workload.names], dtype=bool)
    together = replica[is_replica].sum(axis=0)
    dense = dense_cost(recipe, topology, style, workload)
    reduced_bytes = dense.all_reduce_bytes + all_reduce_bytes(workload)[is_replica].sum()
    thresholds, sharded = recipe.exchange.threshold, int((~is_replica).sum())
    finding: dict[Cargo, float] = {
        "vectors": finding_bytes(thresholds.forward, sharded),
        "gradients": finding_bytes(thresholds.backward, sharded),
    }
    stages = _stages(
        ranks, together, dense, all_reduce_seconds(reduced_bytes, topology, style), topology, bool(len(strips))
    )
    slowest = _slowest(stages)
    exposed = _exposed(slowest, dense, style)
    copied = replica[:, STAGES].sum(axis=1) + all_reduce_seconds(all_reduce_bytes(workload), topology, style)
    reduced_s = float(all_reduce_seconds(all_reduce_bytes(workload)[is_replica].sum(), topology, style))
    loads = ranks[:, SECONDS].sum(axis=1) + together[STAGES].sum() + reduced_s
    return Prediction(
        batch=recipe.train.batch,
        memory=_memory(
            ranks, together, float(all_reduce_bytes(workload)[is_replica].sum()), recipe, topology, workload
        ),
        loads=tuple(loads.tolist()),
        ranks=tuple(Stages(*row) for row in stages.tolist()),
        slowest=slowest,
        exposed=exposed,
        step_s=sum(vars(exposed).values()),
        traffic=_traffic(ranks, float(reduced_bytes) * style.dense_bytes / FP32_BYTES, finding, topology),
        tables=dict(
            zip(workload.names, _tables(strips, larger, smaller, owner, copied, is_replica, topology), strict=True)
        ),
    )


def dense_cost(recipe: Recipe, topology: Topology, style: Style, workload: Workload) -> DenseCost:
    """Matrix products at the rate that is reached, or their traffic of activations and weights; and starting them."""
    local_batch = -(-recipe.train.batch // topology.world)
    layers, dims = dense_layers(recipe), [recipe.tables[feature.table].dim for feature in recipe.features.values()]
    tf32 = style.matrix == "tf32" and recipe.train.precision == "fp32"
    peak = topology.tf32_flops if tf32 else getattr(topology, f"{recipe.train.precision}_flops")
    flops_s, byte_s = 1 / (peak * topology.achieved.matrix), rates(topology, workload).stream

    def layer_s(inputs: int, outputs: int) -> float:
        moved = (local_batch * (inputs + 2 * outputs) + inputs * outputs) * FP32_BYTES
        return max(2.0 * local_batch * inputs * outputs * flops_s, moved * byte_s) + OPS_PER_LAYER * topology.op_s

    bottom = len(recipe.model.bottom) if recipe.dense else 0
    seconds = [layer_s(inputs, outputs) for inputs, outputs, _ in layers]
    numbers = local_batch * (sum(dims) + (recipe.model.bottom[-1] if bottom else 0))
    together, mixed = sum(seconds), numbers * topology.number_s * byte_s * topology.hbm_rate
    mixed += local_batch * len(dims) * topology.vector_s / 4
    if isinstance(recipe.model, Dlrm) and recipe.model.interaction == "dot":
        vectors, width = len(dims) + bool(recipe.dense), dims[0]
        # Vectors are put side by side (read, written), multiplied with each other (read twice).
        moved = DOT_PASSES * local_batch * vectors * width * FP32_BYTES
        together += 2.0 * local_batch * vectors**2 * width * flops_s + moved * byte_s
        mixed += local_batch * vectors**2 * topology.product_s
    parameters = num_parameters(recipe)
    return DenseCost(
        together + mixed,
        sum(seconds[:bottom]),
        2 * together + BACKWARD_TIMES * mixed,
        parameters * topology.parameter_s + topology.step_s * UPDATE_SHARE,
        topology.step_s * (1 - UPDATE_SHARE) + len(dims) * topology.feature_s,
        _reduced_bytes(recipe, topology.world),
    )


def _reduced_bytes(recipe: Recipe, world: int) -> float:
    """Bytes of dense gradients that are summed, as if they were fp32: a threshold lets some entries go to who adds
    them, and those of its sums go to all that any rank sent; and to find thresholds something is summed, too."""
    wire, threshold = recipe.exchange.dense, recipe.exchange.threshold.dense
    sizes = parameter_sizes(recipe)
    if threshold is None:
        return sum(sizes) * FP32_BYTES
    shares = [1.0 if size < FEWEST else 1 - threshold.sparsity for size in sizes]
    entries = sum(size * share for size, share in zip(sizes, shares, strict=True))
    answers = sum(size * min(1.0, world * share) for size, share in zip(sizes, shares, strict=True))
    there, back = (
        min(NUMBER_BYTES[wire], travelling_bytes(wire, sent / sum(sizes))) * sum(sizes) for sent in (entries, answers)
    )
    return ((there + back) / 2 + finding_bytes(threshold, len(sizes))) * FP32_BYTES / NUMBER_BYTES[wire]


def _stages(
    ranks: Floats, together: Floats, dense: DenseCost, reduced_s: Floats, topology: Topology, exchanged: bool
) -> Floats:
    """Seconds by rank and stage, in the order of Stages. (W, 8)"""
    world = topology.world
    latency = 0.0 if world == 1 else topology.out_latency_s if topology.nodes > 1 else topology.up_latency_s
    wait = {stage: number * latency * (exchanged or stage == "all_reduce") for stage, number in COLLECTIVES.items()}
    half = ranks[:, Column.OWNER_VECTORS] / 2
    found = np.zeros((world, 8))
    found[:, 0] = ranks[:, Column.IDS] + ranks[:, Column.OWNER_IDS] + wait["ids"] + dense.fixed_s
    found[:, 1] = ranks[:, Column.LOOKUP] + together[Column.LOOKUP]
    found[:, 2] = ranks[:, Column.VECTORS] + half + wait["vectors"]
    found[:, 3] = dense.forward_s
    found[:, 4] = dense.backward_s
    found[:, 5] = reduced_s + wait["all_reduce"]
    found[:, 6] = ranks[:, Column.GRADIENTS] + together[Column.GRADIENTS] + half + wait["gradients"]
    found[:, 7] = ranks[:, Column.UPDATE] + together[Column.UPDATE] + dense.update_s
    return found


def _slowest(stages: Floats) -> Stages:
    """Between two exchanges each rank goes on by itself, and the next exchange waits for the slowest: of each such
    stretch, the stages of the rank that takes longest for it."""
    found = np.zeros(stages.shape[1])
    for stretch in STRETCHES:
        found[stretch] = stages[stages[:, stretch].sum(axis=1).argmax()][stretch]
    return Stages(*found.tolist())


def _exposed(slowest: Stages, dense: DenseCost, style: Style) -> Stages:
    """What each stage adds to the step. With overlap as in Neo's appendix, what hides behind another adds nothing:

    forward max(bottom MLP, look-up + vectors) + the rest; backward max(the rest + max(gradients + update, bottom MLP),
    all-reduce); ids hide behind the step before.
    """
    if style.overlap == "none":
        return slowest
    bottom, back = dense.bottom_s, 2 * dense.bottom_s
    hidden = min(bottom, slowest.lookup + slowest.vectors)
    hidden_back = min(back, slowest.gradients + slowest.update)
    chain = slowest.dense_backward - hidden_back + slowest.gradients + slowest.update
    return Stages(
        lookup=slowest.lookup,
        vectors=slowest.vectors,
        dense_forward=slowest.dense_forward - hidden,
        dense_backward=slowest.dense_backward - hidden_back,
        all_reduce=max(0.0, slowest.all_reduce - chain),
        gradients=slowest.gradients,
        update=slowest.update,
    )


def _owner_costs(strips: Strips, larger: Floats, smaller: Floats) -> Floats:
    """What each strip costs every rank as the owner of samples. (S, 3)"""
    columns = [Column.OWNER_IDS, Column.OWNER_VECTORS, Column.OWNER_BYTES]
    return _summed(strips, larger, smaller)[:, columns]


def _summed(strips: Strips, larger: Floats, smaller: Floats) -> Floats:
    """Each strip's costs over all of its ranks. (S, C)"""
    more = (strips.rows % strips.ranks)[:, None]
    return more * larger + (strips.ranks[:, None] - more) * smaller


def _memory(
    ranks: Floats, together: Floats, flat: float, recipe: Recipe, topology: Topology, workload: Workload
) -> tuple[RankMemory, ...]:
    """flat: bytes of replicas' gradients, which are there all the time."""
    heap = HEAP_TIMES[topology.device]
    dense, activations = dense_bytes(recipe, topology.world, topology.mapped_ranks)
    gradients = math.ceil(together[Column.EXCHANGE])
    ids_per_sample = float(workload.ids.sum()) / workload.batch
    read_ahead = pipeline_bytes(recipe, topology.world, ids_per_sample, topology.device)
    busiest = max(activations, routing_bytes(recipe, topology.world, ids_per_sample))
    parts = ranks[:, MEMORY_COLUMNS]
    parts[:, 0] += together[Column.WEIGHTS]
    parts[:, 1] += together[Column.STATE]
    parts[:, 2] += ranks[:, Column.OWNER_BYTES]
    # While ids are routed or the model runs, no more than half of a step's vectors is there: gradients come later.
    free = (parts[:, 2] + together[Column.EXCHANGE] - flat) / 2
    beyond = np.maximum(heap * busiest - free, 0)
    parts = np.concatenate([parts, beyond[:, None]], axis=1)
    return tuple(
        RankMemory(
            weights_bytes=int(weights),
            state_bytes=int(state),
            dense_bytes=dense + gradients,
            activation_bytes=int(beyond_exchange),
            exchange_bytes=int(exchange),
            pipeline_bytes=int(heap * read_ahead),
            host_weights_bytes=int(host_weights),
            host_state_bytes=int(host_state),
        )
        for weights, state, exchange, host_weights, host_state, beyond_exchange in np.ceil(parts).tolist()
    )


def _traffic(
    ranks: Floats, reduced_bytes: float, finding: Mapping[Cargo, float], topology: Topology
) -> tuple[Traffic, ...]:
    """finding: bytes that are summed to find thresholds, beside what columns hold."""
    sums = ranks.sum(axis=0)
    node, nodes = min(topology.ranks_per_node, topology.world), topology.nodes
    over = {"up": (node - 1) / node, "out": (nodes - 1) / nodes / node}
    summed = {link: 2 * share * topology.world for link, share in over.items()}  # of a byte that is summed, by link
    found = [
        Traffic(link, cargo, float(sums[column]) + finding.get(cargo, 0) * summed.get(link, 0))
        for link, cargo, column in CARGO
    ]
    found += [Traffic("up", "all_reduce", reduced_bytes * summed["up"])]
    found += [Traffic("out", "all_reduce", reduced_bytes * summed["out"])]
    return tuple(found)


def _tables(
    strips: Strips,
    larger: Floats,
    smaller: Floats,
    owner: Floats,
    copied: Floats,
    is_replica: Bools,
    topology: Topology,
) -> list[TableCost]:
    """Each table's seconds: over all ranks, and on the one that has most of them."""
    count = len(is_replica)
    own = np.bincount(strips.table, _summed(strips, larger, smaller)[:, STAGES].sum(axis=1), minlength=count)
    dealt = np.bincount(strips.table, owner[:, :2].sum(axis=1), minlength=count)
    most = np.zeros(count)
    np.maximum.at(most, strips.table, larger[:, STAGES].sum(axis=1))
    total = np.where(is_replica, copied * topology.world, own + dealt * topology.world)
    largest = np.where(is_replica, copied, most + dealt)
    return [TableCost(*pair) for pair in zip(total.tolist(), largest.tolist(), strict=True)]
