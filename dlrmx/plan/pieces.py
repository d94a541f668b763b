"""What a rectangle of a table costs per step: seconds on the rank that holds it, bytes of memory, bytes by link.

Legend: P pieces (rectangles of one rank each, one entry for all that are alike), C columns of a cost table.
Sources: only touched bags travel (dlrmx.plan.workload); traffic of look-up and update as fbgemm's kernels do them
(read each row, write each sum; sort the ids, sum the gradients of each row, update it once).
"""

from dataclasses import dataclass
from enum import IntEnum, auto

import numpy as np

from dlrmx.plan.memory import FP32_BYTES, HEAP_TIMES, ID_BYTES, SEGMENT_TIMES, SparseKind
from dlrmx.plan.rates import Rates, rates
from dlrmx.plan.shards import Tier
from dlrmx.plan.style import OURS, Style
from dlrmx.plan.topology import Topology
from dlrmx.plan.workload import Floats, Ints, Workload

TIERS: tuple[Tier, ...] = ("hbm", "uvm_caching", "uvm")
HBM, CACHING, UVM = range(3)
# Memory is read in sectors of so many bytes.
SECTOR_BYTES = {"cuda": 32, "cpu": 64}
# An id's part in the update's radix sort: four passes over 4-byte keys and 4-byte places, each read and written.
SORT_BYTES = 64
CACHE_SLOT_BYTES = 8  # the time of last use
# How often dlrmx.parallel reads or writes a vector or its gradient in memory, beside look-up and update. Their holder
# scales a gradient, their owner looks whether it is finite. Where tables differ in width, messages are joined and
# separated at both ends, each way. Of tables that are cut by rows, an owner adds vectors where it zeroed and selects
# gradients; those of whole tables come as the model takes them.
HOLDER_PASSES, OWNER_PASSES, MIXED_PASSES, ADDED_PASSES = 2, 1, 4, 6
# Whole tables' ids are copied slot by slot: part of the time that others take, which are dealt one by one and sorted.
STRAIGHT_TIMES = 0.05
NEO_PASSES_OF_OWNER = 3  # read, added, written
# How often dlrmx.parallel holds them at once, at the busiest moment: when gradients have come. A holder has the sums
# that it looked up, the gradients' message, and, where tables differ in width, them by table; an owner has the message
# that it sent, and the bags' sums that went into the model, and their gradients, which autograd keeps.
# In a narrow format the messages are so, and what they were made of or become is there beside them.
HOLDER_MESSAGES, OWNER_MESSAGES, LEAF_COPIES = 1, 1, 2
# Of a number while thresholds are found, in the first step: values, their tables and bits, and three more as int64
# (parallel/largest.py).
FINDING_BYTES = 4 + 5 * 8
# Of an id where it is looked up: in the message, joined, cut by table; the update's sort (keys, places, twice).
HOLDER_ID_BYTES = 7 * ID_BYTES
# Of an id and of a bag at their owner, for this batch and the next: the id; the bag's length and its number as int64.
OWNER_ID_BYTES, OWNER_BAG_BYTES = 2 * ID_BYTES, 2 * (ID_BYTES + 8)
# Of an id that is looked up in a replica: its row as int64 and int32, and its bag.
NEAR_ID_BYTES = 8 + ID_BYTES + 8
# Joined, widened and numbered: about half of what an id takes to be routed.
NEAR_ID_TIMES = 0.5
# A replica's gradients are gathered for each id (2) and added to the table's (3).
REPLICA_PASSES = 5


class Column(IntEnum):
    """Of a cost table. Seconds and bytes of the rank that holds the piece, unless said."""

    IDS = 0
    LOOKUP = auto()
    VECTORS = auto()
    GRADIENTS = auto()
    UPDATE = auto()
    WEIGHTS = auto()  # bytes
    STATE = auto()
    EXCHANGE = auto()
    HOST_WEIGHTS = auto()
    HOST_STATE = auto()
    IDS_UP = auto()  # bytes sent per step
    IDS_OUT = auto()
    VECTORS_UP = auto()
    VECTORS_OUT = auto()
    GRADIENTS_UP = auto()
    GRADIENTS_OUT = auto()
    CACHE = auto()
    OWNER_IDS = auto()  # seconds of each rank, as the owner of samples
    OWNER_VECTORS = auto()
    OWNER_BYTES = auto()  # bytes of each rank, likewise


STAGES = [Column.IDS, Column.LOOKUP, Column.VECTORS, Column.GRADIENTS, Column.UPDATE]
SECONDS = [*STAGES, Column.OWNER_IDS, Column.OWNER_VECTORS]
DEVICE_BYTES = [Column.WEIGHTS, Column.STATE, Column.EXCHANGE]
HOST_BYTES = [Column.HOST_WEIGHTS, Column.HOST_STATE]


@dataclass(frozen=True)
class Pieces:
    """Rectangles, as arrays of one length P.

    node_rows: rows of its strip on all ranks of its node together, or 0 where sums travel straight to the owner.
    node_ranks: over so many ranks of the node.
    """

    table: Ints
    rows: Floats
    cols: Floats
    tier: Ints
    cache_ratio: Floats
    node_rows: Floats
    node_ranks: Floats


def state_numbers(cols: Floats, optimizer: SparseKind) -> Floats:
    """Numbers of optimizer state in a row of `cols` columns."""
    return {"sgd": np.zeros_like(cols), "adagrad": cols, "rowwise_adagrad": np.ones_like(cols)}[optimizer]


def costs(pieces: Pieces, workload: Workload, topology: Topology, optimizer: SparseKind, style: Style = OURS) -> Floats:
    """The cost table of pieces, in whole bytes and in seconds of single precision. (P, C)

    Exponentials and logarithms differ in their last bits from one processor to another, and the plan must not.
    """
    rate, table = rates(topology, workload), pieces.table
    share = pieces.rows / workload.rows[table]
    ids = workload.ids[table] * share
    bags = workload.touched(table, share)
    whole = style.exchange == "reduce_scatter"
    if whole:
        bags = np.where(share > 0, workload.bags[table], 0.0)
    found = np.zeros((len(table), len(Column)))
    _memory(found, pieces, workload, topology, optimizer)
    _compute(found, pieces, workload, topology, optimizer, ids, bags)
    _exchange(found, pieces, workload, rate, style, ids, bags)
    owner = -(-workload.batch // topology.world) / workload.batch  # the largest local batch's share
    arriving = _arriving(pieces, workload, bags, whole)
    cut = pieces.rows < workload.rows[table]
    found[:, Column.OWNER_IDS] = ids * owner * topology.id_s * np.where(cut, 1.0, STRAIGHT_TIMES)
    mixed = MIXED_PASSES * workload.is_mixed
    passes = NEO_PASSES_OF_OWNER if whole else OWNER_PASSES + mixed + ADDED_PASSES * cut
    arriving_s = passes * pieces.cols * FP32_BYTES * rate.stream + topology.vector_s * cut
    found[:, Column.OWNER_VECTORS] = arriving * owner * arriving_s
    if not whole:
        pass_s = bags * pieces.cols * FP32_BYTES * rate.stream
        found[:, Column.VECTORS] += mixed / 2 * pass_s
        found[:, Column.GRADIENTS] += (HOLDER_PASSES + mixed / 2) * pass_s
    _buffers(found, pieces, workload, topology, style, ids, bags)
    return rounded(found)


def _buffers(
    found: Floats, pieces: Pieces, workload: Workload, topology: Topology, style: Style, ids: Floats, bags: Floats
) -> None:
    """Bytes of a step's vectors and ids: where they are looked up, and at each owner of samples."""
    table, heap = pieces.table, HEAP_TIMES[topology.device]
    owner = -(-workload.batch // topology.world) / workload.batch
    whole = style.exchange == "reduce_scatter"
    leaves = workload.bags[table] * pieces.rows / workload.rows[table] * pieces.cols
    vectors = _arriving(pieces, workload, bags, whole) * pieces.cols
    if whole:  # a reduce-scatter gives an owner the sum, not what each rank has of it, and takes one gradient for all
        vectors = np.where(pieces.node_rows > 0, vectors, leaves)
    held_bytes, sent_bytes, kept_bytes = _number_bytes(style, workload.is_mixed)
    found[:, Column.EXCHANGE] = heap * (held_bytes * bags * pieces.cols + HOLDER_ID_BYTES * ids)
    routed = OWNER_ID_BYTES * ids + OWNER_BAG_BYTES * bags
    found[:, Column.OWNER_BYTES] = heap * owner * (sent_bytes * vectors + kept_bytes * leaves + routed)
    if topology.mapped_ranks:  # what travels lies in memory of the sender, where the other reads it
        travelling = SEGMENT_TIMES * (style.forward_bytes + style.backward_bytes) * (1 - 1 / topology.world)
        found[:, Column.EXCHANGE] += travelling * bags * pieces.cols
        found[:, Column.OWNER_BYTES] += owner * travelling * vectors


def _number_bytes(style: Style, is_mixed: bool) -> tuple[float, float, float]:
    """Of a vector's number in memory at the busiest moment: where it was looked up, at its owner for each that came,
    and for each in the model."""
    if style.exchange == "reduce_scatter":  # by table or together, one message and what it is made of or becomes
        return FP32_BYTES + style.message_bytes, style.message_bytes, LEAF_COPIES * FP32_BYTES
    decoded = FP32_BYTES if style.message_bytes < FP32_BYTES else 0
    held = FP32_BYTES + (HOLDER_MESSAGES + is_mixed) * style.message_bytes + decoded + style.place_bytes
    sent = OWNER_MESSAGES * style.message_bytes + style.place_bytes
    if style.finds_forward:
        held = max(held, FP32_BYTES + FINDING_BYTES)
    if style.finds_backward:
        sent = max(sent, FP32_BYTES + style.place_bytes + FINDING_BYTES)
    return held, sent, LEAF_COPIES * FP32_BYTES


def rounded(found: Floats) -> Floats:
    """A cost table as it is on every machine: bytes of memory as whole numbers, all else with 24 bits."""
    memory = np.zeros(found.shape[1], dtype=bool)
    memory[[*DEVICE_BYTES, *HOST_BYTES, Column.OWNER_BYTES]] = True
    return np.where(memory, np.ceil(found - 1e-6), found.astype(np.float32))


def _memory(found: Floats, pieces: Pieces, workload: Workload, topology: Topology, optimizer: SparseKind) -> None:
    """Bytes of weights and state, by tier."""
    weights = pieces.rows * pieces.cols * workload.element_bytes[pieces.table]
    state = pieces.rows * state_numbers(pieces.cols, optimizer) * FP32_BYTES
    cached = np.where(pieces.tier == CACHING, pieces.cache_ratio, 0.0)
    on_device = pieces.tier == HBM
    found[:, Column.WEIGHTS] = np.where(on_device, weights, cached * (weights + CACHE_SLOT_BYTES * pieces.rows))
    found[:, Column.STATE] = np.where(on_device, state, 0.0)
    found[:, Column.HOST_WEIGHTS] = np.where(on_device, 0.0, weights)
    found[:, Column.HOST_STATE] = np.where(on_device, 0.0, state)


def _compute(
    found: Floats,
    pieces: Pieces,
    workload: Workload,
    topology: Topology,
    optimizer: SparseKind,
    ids: Floats,
    bags: Floats,
) -> None:
    """Look-up and update, by the traffic to the tier that the rows lie in."""
    table, rate = pieces.table, rates(topology, workload)
    row_bytes = pieces.cols * workload.element_bytes[table]
    sector = SECTOR_BYTES[topology.device]
    read_bytes = np.ceil(row_bytes / sector) * sector
    state_bytes = state_numbers(pieces.cols, optimizer) * FP32_BYTES
    met = workload.distinct[table] * pieces.rows / workload.rows[table]
    row_rate = np.where(pieces.tier == UVM, rate.host, rate.device)
    state_rate = np.where(pieces.tier == HBM, rate.device, rate.host)
    found[:, Column.LOOKUP] = (
        ids * (read_bytes * row_rate + topology.row_s)
        + (ids * 2 * ID_BYTES + bags * pieces.cols * FP32_BYTES) * rate.device
    )
    # A bag's gradient is read for each of its ids: the first time from memory, then from the cache if that holds them.
    gradient_bytes = bags * pieces.cols * FP32_BYTES
    again = gradient_bytes / np.maximum(gradient_bytes + topology.cache_bytes, 1.0)
    gradients_read = np.minimum(ids, bags) + np.maximum(ids - bags, 0.0) * again
    found[:, Column.UPDATE] = (
        met * topology.update_s
        + (gradients_read * pieces.cols * FP32_BYTES + ids * SORT_BYTES) * rate.device
        + 2 * met * (read_bytes * row_rate + state_bytes * state_rate)
    )
    caching = np.flatnonzero(pieces.tier == CACHING)
    if len(caching):
        part = pieces.rows[caching] / workload.rows[table[caching]]
        missed = workload.missed(table[caching], pieces.cache_ratio[caching]) * part
        # A row comes in, and the one that it replaces goes back.
        found[caching, Column.CACHE] = 2 * missed * row_bytes[caching]
        found[caching, Column.LOOKUP] += found[caching, Column.CACHE] * rate.host


def _exchange(
    found: Floats, pieces: Pieces, workload: Workload, rate: Rates, style: Style, ids: Floats, bags: Floats
) -> None:
    """Ids in, vectors out, gradients in. All ranks own samples alike."""
    lengths = np.where(workload.one_hot[pieces.table] > 0, 0.0, bags)
    id_bytes = (ids + lengths) * ID_BYTES
    found[:, Column.IDS] = id_bytes * rate.all_to_all
    found[:, Column.IDS_UP] = id_bytes * rate.up_share
    found[:, Column.IDS_OUT] = id_bytes * rate.out_share
    by_node = pieces.node_rows > 0
    node = np.where(by_node, np.maximum(pieces.node_ranks, 1), 1.0)
    whole = style.exchange == "reduce_scatter"
    leaving = _arriving(pieces, workload, bags, whole)
    cut = pieces.rows < workload.rows[pieces.table]
    flat_rate = np.where(cut & whole & ~by_node, rate.reduce_scatter, rate.all_to_all)
    for seconds, up, out, (number_bytes, scale_bytes) in (
        (Column.VECTORS, Column.VECTORS_UP, Column.VECTORS_OUT, (style.forward_bytes, style.forward_scale)),
        (Column.GRADIENTS, Column.GRADIENTS_UP, Column.GRADIENTS_OUT, (style.backward_bytes, style.backward_scale)),
    ):
        # To the ranks of its node; our partial sums travel there in fp32.
        inside = np.where(by_node, bags * pieces.cols * (number_bytes if whole else FP32_BYTES), 0.0)
        vector_bytes = pieces.cols * number_bytes
        if scale_bytes:  # a vector travels whole, and begins a byte
            vector_bytes = np.ceil(vector_bytes) + scale_bytes
        outside = leaving * vector_bytes  # to all ranks
        found[:, seconds] = inside * rate.in_node + outside * flat_rate
        found[:, up] = inside * (1 - 1 / node) + outside * rate.up_share
        found[:, out] = outside * rate.out_share


def _arriving(pieces: Pieces, workload: Workload, bags: Floats, whole: bool) -> Floats:
    """Bags whose sums this piece's rank sends to their owners: its own, or its part of the node's. (P,)"""
    by_node = pieces.node_rows > 0
    if not by_node.any():
        return bags
    share = np.where(by_node, pieces.node_rows / workload.rows[pieces.table], 1.0)
    of_node = workload.bags[pieces.table] if whole else workload.touched(pieces.table, share)
    return np.where(by_node, of_node / np.maximum(pieces.node_ranks, 1), bags)


def replicas(workload: Workload, topology: Topology, optimizer: SparseKind) -> Floats:
    """The cost table of each table as a replica on every rank, of one rank; the all-reduce is apart. (T, C)

    EXCHANGE has its gradient in the flat buffer, the sums of bags and their gradients, and after each other those
    gathered by id and all rows as the update looks them up.
    """
    rate = rates(topology, workload)
    rows, dim = workload.rows, workload.dim
    sector = SECTOR_BYTES[topology.device]
    read_bytes = np.ceil(dim * workload.element_bytes / sector) * sector
    state = state_numbers(dim, optimizer) * FP32_BYTES
    local = -(-workload.batch // topology.world) / workload.batch
    found = np.zeros((len(rows), len(Column)))
    ids, bags = local * workload.ids, local * workload.bags
    found[:, Column.LOOKUP] = (
        ids * (topology.row_s + NEAR_ID_TIMES * topology.id_s)
        + (ids * (read_bytes + 2 * ID_BYTES) + bags * dim * FP32_BYTES) * rate.device
    )
    # Bags' gradients are summed into the table's, that is read after the all-reduce, and rows that were met move.
    summed = REPLICA_PASSES * ids * dim * FP32_BYTES * rate.device
    found[:, Column.GRADIENTS] = summed + ids * topology.vector_s
    read_again = 2 * rows * dim * FP32_BYTES + 2 * workload.distinct * (read_bytes + state)
    found[:, Column.UPDATE] = rows * (topology.row_s + topology.update_s) + read_again * rate.device
    found[:, Column.WEIGHTS] = rows * dim * workload.element_bytes
    found[:, Column.STATE] = rows * state
    of_step = (2 * bags + np.maximum(ids, rows)) * dim * FP32_BYTES + ids * NEAR_ID_BYTES
    gradients = (1 + topology.mapped_ranks) * rows * dim * FP32_BYTES
    found[:, Column.EXCHANGE] = gradients + HEAP_TIMES[topology.device] * of_step
    return rounded(found)


def all_reduce_bytes(workload: Workload) -> Floats:
    """Bytes of each table's gradient, all-reduced where it is a replica. (T,)"""
    return workload.rows * workload.dim * FP32_BYTES
