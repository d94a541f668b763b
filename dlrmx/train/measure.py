"""Measures what the planner counts on, with real workers: `python -m dlrmx.train.measure FILE`, one process per rank,
started by torch.distributed.run. Reads no recipe.

Every number is taken as a worker meets it: all ranks at once, through the classes that training uses, medians over
repetitions, the slowest rank's. A time is a fixed part and a part that grows with the work; both are fitted over
several sizes. On processors small models are trained, too (sample.py), whose data is prepared beside FILE. Rank 0
writes all to FILE as JSON: seconds, bytes and operations.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from dlrmx.data.batches import Bags
from dlrmx.parallel.fused import FusedTable
from dlrmx.parallel.hops import all_ranks
from dlrmx.parallel.layout import make_layout
from dlrmx.parallel.pages import keep_freed_memory
from dlrmx.parallel.routing import Router
from dlrmx.parallel.wire import TIMEOUT, Wire
from dlrmx.plan.shards import Plan, Strip, TablePlan
from dlrmx.recipe.schema import Feature, SparseOptimizer
from dlrmx.train.sample import stage_seconds
from dlrmx.train.worker import worker_device

REPEATS = 7
MESSAGE_BYTES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24)  # of one rank, to all others together
# (rows, inputs, outputs): the shapes of a recommendation model's layers, small to large.
MATRICES = ((64, 64, 64), (256, 128, 128), (1024, 256, 256), (2048, 512, 256), (2048, 1024, 512))
LOOK_UPS = ((2_048, 1), (16_384, 1), (16_384, 4), (16_384, 16))  # (bags, ids in each)
TABLE_ROWS, TABLE_DIM = 1_000_000, 64  # 256 MB: no cache holds it
FEATURES, ROUTED_BATCHES = 8, (512, 2_048, 8_192)


@dataclass(frozen=True)
class Line:
    """Seconds = fixed_s + work / rate: of a size of work in bytes, operations or ids."""

    fixed_s: float
    rate: float
    points: tuple[tuple[float, float], ...]  # (work, seconds) as measured


def fit(points: Sequence[tuple[float, float]]) -> Line:
    """The line through (work, seconds) points with the least squares of relative errors; its fixed part is not < 0."""
    work, seconds = np.array(points, dtype=float).T
    columns = np.stack([1 / seconds, work / seconds], axis=1)
    fixed, slope = np.linalg.lstsq(columns, np.ones(len(points)), rcond=None)[0]
    if fixed < 0:
        fixed, slope = 0.0, float((work / seconds).sum() / ((work / seconds) ** 2).sum())
    if slope <= 0:  # nothing grew: what takes no time has no rate
        slope = 1e-18
    return Line(float(fixed), float(1 / slope), tuple((float(w), float(s)) for w, s in points))


def main(file: Path) -> None:
    """Measure, and write the result on rank 0."""
    keep_freed_memory()
    device = worker_device()
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    wire = Wire(int(os.environ["LOCAL_WORLD_SIZE"]))
    found = {
        "matrix_fp32": _matrix(device, None),
        "matrix_bf16": _matrix(device, torch.bfloat16),
        "copy": _copy(device),
        "look_up": _look_up(device),
        "update": _update(device),
        "route": _route(device, wire.world),
        "all_to_all": _all_to_all(device, wire),
        "all_reduce": _all_reduce(device, wire),
    }
    stages = stage_seconds(wire, file.parent) if device.type == "cpu" else {}
    if wire.rank == 0:
        facts = {"world": wire.world, "device": device.type, "threads": torch.get_num_threads()}
        lines = {name: asdict(line) for name, line in found.items()}
        file.write_text(json.dumps({**facts, "lines": lines, "stages": stages}))
    dist.barrier()
    dist.destroy_process_group()


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call: the median over repetitions on the slowest rank. All ranks begin together."""
    work()
    seconds = []
    for _ in range(REPEATS):
        dist.barrier()
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    slowest = torch.tensor([statistics.median(seconds)], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


# ------------------------------------------------------------------------------------------- compute


def _matrix(device: torch.device, autocast: torch.dtype | None) -> Line:
    """A layer forward and backward: 6 operations for each weight and row, in 3 products."""
    points = []
    for rows, inputs, outputs in MATRICES:
        layer = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()).to(device)
        values = torch.randn(rows, inputs, device=device, requires_grad=True)

        def step(layer: nn.Module = layer, values: torch.Tensor = values) -> None:
            with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
                layer(values).float().sum().backward()

        points.append((6.0 * rows * inputs * outputs, timed(step, device)))
    return fit(points)


def _copy(device: torch.device) -> Line:
    """Vectors selected into a new message, in their order: bytes read and written."""
    points = []
    for bags in sorted({bags for bags, _ in LOOK_UPS} | {4 * LOOK_UPS[-1][0]}):
        vectors, order = torch.ones(bags, TABLE_DIM, device=device), torch.arange(bags, device=device)
        moved = 2.0 * bags * TABLE_DIM * 4
        points.append((moved, timed(lambda v=vectors, o=order: v.index_select(0, o), device)))  # type: ignore[misc]
    return fit(points)


def _look_up(device: torch.device) -> Line:
    """Bags of evenly spread rows: the bytes of their rows read and sums written."""
    table, points = _table(device), []
    for bags, length in LOOK_UPS:
        ids, offsets = _ids(bags, length, device)
        moved = (bags * length + bags) * TABLE_DIM * 4
        points.append((float(moved), timed(lambda i=ids, o=offsets: table.look_up(i, o, None), device)))  # type: ignore[misc]
    return fit(points)


def _update(device: torch.device) -> Line:
    """The backward pass of a look-up with its optimizer: rows read and written, gradients read."""
    table, points = _table(device), []
    for bags, length in LOOK_UPS:
        ids, offsets = _ids(bags, length, device)
        gradient = torch.ones(bags, TABLE_DIM, device=device)
        pooled = table.look_up(ids, offsets, None)
        moved = (2 * bags * length + bags) * TABLE_DIM * 4
        update = lambda p=pooled, g=gradient: p.backward(g, retain_graph=True)  # noqa: E731
        points.append((float(moved), timed(update, device)))
    return fit(points)


def _table(device: torch.device) -> FusedTable:
    optimizer = SparseOptimizer(kind="rowwise_adagrad", lr=0.01)
    table = FusedTable(TABLE_ROWS, TABLE_DIM, "fp32", optimizer, device)
    table.weight.fill_(0.5)  # pages that were never written are all one page
    return table


def _ids(bags: int, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(TABLE_ROWS, (bags * length,), dtype=torch.int32, device=device)
    return ids, torch.arange(0, bags * length + 1, length, dtype=torch.int32, device=device)


def _route(device: torch.device, world: int) -> Line:
    """Ids of several row-wise tables to the ranks that hold them, at the samples' owner."""
    names = [f"t{k}" for k in range(FEATURES)]
    strip = Strip(0, TABLE_ROWS, 0, TABLE_DIM, 0, world)
    tables = {name: TablePlan(TABLE_ROWS, TABLE_DIM, "fp32", "row_wise", strips=(strip,)) for name in names}
    layout = make_layout(Plan(world, tables), {name: Feature(column=name, table=name) for name in names})
    router = Router(layout, all_ranks(layout, 0), device)
    drawn, points = np.random.default_rng(0), []
    for batch in ROUTED_BATCHES:
        lengths = np.full(batch, 2, dtype=np.int32)
        bags = [Bags(drawn.integers(TABLE_ROWS, size=2 * batch), lengths, None) for _ in names]
        points.append((2.0 * batch * FEATURES, timed(lambda b=bags, n=batch: router.route(b, n), device)))  # type: ignore[misc]
    return fit(points)


# -------------------------------------------------------------------------------------------- links


def _all_to_all(device: torch.device, wire: Wire) -> Line:
    """Equal parts to all ranks: the bytes that leave a rank."""
    points = []
    for size in MESSAGE_BYTES if wire.world > 1 else ():
        part = size // 4 // wire.world
        send, counts = torch.ones(part * wire.world, device=device), [part] * wire.world
        leaving = 4.0 * part * (wire.world - 1)
        points.append((leaving, timed(lambda s=send, c=counts: wire.all_to_all("vectors", s, c, c).wait(), device)))  # type: ignore[misc]
    return fit(points) if points else Line(0.0, float("inf"), ())


def _all_reduce(device: torch.device, wire: Wire) -> Line:
    """A flat buffer summed in place: the bytes that leave a rank in a ring, 2 (W - 1) / W of it."""
    points = []
    for size in MESSAGE_BYTES if wire.world > 1 else ():
        buffer = torch.zeros(size // 4, device=device)
        leaving = 2.0 * size * (wire.world - 1) / wire.world
        points.append((leaving, timed(lambda b=buffer: wire.all_reduce("dense", b).wait(), device)))  # type: ignore[misc]
    return fit(points) if points else Line(0.0, float("inf"), ())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
