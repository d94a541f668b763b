"""The reading of batches: rows/s of one core from the page cache, and what a training step pays for it.

    .venv/bin/python benchmarks/loader.py [--rows 2000000] [--rounds 12] [--folder FOLDER]

The data are 13 dense columns and 26 one-hot features of tables of 100,000 rows, dim 64; a row is label, dense columns
and ids. Prepared in FOLDER (default: a temporary one), and kept if they were there.
First one thread reads batches of a rank, as training and evaluation do, checks included: processor time per row, the
share of each part, and the machine's copying of as many bytes to hold it against. Then two ranks train in batches of
2,048 each; in turn a few steps on batches that come from the thread that reads ahead, and a few on one batch that was
read before. The ratio of the two is what reading costs a step. Rounds are interleaved, so that other programs on the
machine meet both sides.
"""

import argparse
import itertools
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from dlrmx.data import batches, order
from dlrmx.data.batches import Split
from dlrmx.data.manifest import read_manifest
from dlrmx.data.prepare import prepare
from dlrmx.parallel.wire import Wire
from dlrmx.plan.planner import make_plan
from dlrmx.plan.topology import topology_of
from dlrmx.recipe.profiles import LocalProfile
from dlrmx.recipe.schema import Recipe
from dlrmx.train.ahead import Ahead
from dlrmx.train.build import build_parts
from dlrmx.train.step import Slice, train_step
from dlrmx.train.stream import Position, Stream

WORLD, BATCH = 2, 2048
FEATURES, TABLE_ROWS, DIM, DENSE = 26, 100_000, 64, 13
TURN = 16  # steps of one side in a round


def recipe(rows: int, *, batch: int = WORLD * BATCH, order: str = "shuffled") -> Recipe:
    names = [f"C{number}" for number in range(FEATURES)]
    return Recipe.model_validate(
        {
            "dlrmx": 1,
            "name": "loader",
            "data": {"kind": "synthetic", "rows": rows, "order": order, "split": {"validation": 0, "test": 0}},
            "dense": {f"I{number}": {} for number in range(DENSE)},
            "features": {name: {} for name in names},
            "tables": {name: {"rows": TABLE_ROWS, "dim": DIM} for name in names},
            "model": {"kind": "dlrm", "bottom": [512, 256, DIM], "top": [512, 256, 1]},
            "optimizer": {"dense": {"kind": "sgd", "lr": 0.01}, "sparse": {"kind": "rowwise_adagrad", "lr": 0.01}},
            "train": {"batch": batch, "stop": {"epochs": 1_000_000}},
        }
    )


def main(rows: int, rounds: int, folder: Path) -> None:
    data = prepare(recipe(rows), folder)
    size = sum(path.stat().st_size for path in data.iterdir())
    for path in data.iterdir():
        path.read_bytes()  # into the page cache
    print(f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores, numpy {np.__version__}")
    print(f"{rows:,} rows, {size / 1e6:.0f} MB")
    for batch in (BATCH, 8 * BATCH):
        for kind in ("shuffled", "as_stored"):
            _print_reading(data, recipe(rows, batch=batch, order=kind))
    _print_parts(data, rows)
    with tempfile.TemporaryDirectory() as store:
        spawn(_train, args=(store, data, rows, rounds), nprocs=WORLD)


def _print_reading(data: Path, made: Recipe) -> None:
    split = Split(data, "train")
    slices = Stream(split, made, order_seed=0, rank=0, world=1).slices(Position())
    count = split.rows // made.train.batch
    best, mean = _per_row(lambda: next(slices), count, made.train.batch)
    print(
        f"batches of {made.train.batch:,}, {made.data.order}: {1e9 / mean:,.0f} rows/s of one core "
        f"({mean:.0f} ns of processor a row; the best batch {best:.0f})"
    )


def _print_parts(data: Path, rows: int) -> None:
    split, starts = Split(data, "train"), iter(range(0, rows - BATCH, BATCH))
    columns = split._columns

    def some() -> np.ndarray:
        start = next(starts)
        return order.shuffled_rows(rows, seed=0, epoch=0, start=start, stop=start + BATCH)

    which = [some() for _ in range(rows // BATCH // 2)]
    taken, each = columns.take(which[0]), itertools.cycle(which)
    bytes_moved = np.empty((rows * 4 // 10, FEATURES + DENSE + 1), dtype=np.int32)[: BATCH * 8]
    parts: dict[str, Callable[[], object]] = {
        "the order": some,
        "gathering ids": lambda: np.take(columns.one_hot, next(each), axis=0, mode="clip"),
        "gathering dense columns": lambda: np.take(columns.dense, next(each), axis=0, mode="clip"),
        "gathering labels": lambda: np.take(columns.labels, next(each), mode="clip"),
        "ids by feature": lambda: batches._turned(taken.one_hot),
        "(copying as many bytes that lie together)": bytes_moved[:BATCH].copy,
    }
    print(f"parts, ns a row in batches of {BATCH:,}:")
    for name, part in parts.items():
        best, mean = _per_row(part, len(which) // 2, BATCH)
        print(f"    {name:42} {mean:5.1f}  (the best batch {best:.1f})")


def _per_row(read: Callable[[], object], count: int, rows: int) -> tuple[float, float]:
    """Nanoseconds of this thread's processor time a row: of the best of `count` batches, and of all."""
    costs = []
    for _ in range(count):
        began = time.thread_time_ns()
        read()
        costs.append((time.thread_time_ns() - began) / rows)
    return min(costs), statistics.fmean(costs)


def _train(rank: int, store: str, data: Path, rows: int, rounds: int) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}/store", rank=rank, world_size=WORLD)
    made = recipe(rows)
    plan = make_plan(made, topology_of(LocalProfile(workers_per_node=WORLD)), read_manifest(data))
    parts = build_parts(made, plan, wire=Wire(), dense_dim=DENSE, device=torch.device("cpu"))
    parts.embeddings.initialise(0)
    stream = Stream(Split(data, "train"), made, order_seed=0, rank=rank, world=WORLD)
    one = stream.slice_at(Position())
    position = Position()

    def steps(slices: Iterator[Slice]) -> tuple[float, float]:
        """Wall and processor time of a turn in seconds, the slower rank's."""
        nonlocal position
        dist.barrier()
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(TURN):
            train_step(parts, next(slices), step=position.step, rate=1.0)
            position = stream.after(position)
        spent = (time.perf_counter() - began, time.process_time() - cpu)
        wall, processor = (parts.wire.agree(int(1e9 * seconds)) / 1e9 for seconds in spent)
        return wall, processor

    def read() -> tuple[float, float]:
        """The thread begins with the turn, so that no batch was read outside of it; its last ones are for nobody."""
        with Ahead(stream.slices(position)) as slices:
            return steps(slices)

    sides = [(read(), steps(repeat(one))) for _ in range(rounds + 2)][2:]
    if rank == 0:
        _print_ratio(sides)
    dist.barrier()
    dist.destroy_process_group()


def _print_ratio(sides: list[tuple[tuple[float, float], tuple[float, float]]]) -> None:
    for number, what in enumerate(("wall time", "processor time")):
        reading, without = ([side[number] for side in both] for both in zip(*sides, strict=True))
        ratios = [read / fixed for read, fixed in zip(reading, without, strict=True)]
        low, ratio, high = statistics.quantiles(ratios, n=4)
        ahead, fixed = (1000 * statistics.median(seconds) / TURN for seconds in (reading, without))
        print(
            f"a step of {WORLD} ranks x {BATCH:,} rows, {what}: {ahead:.1f} ms read ahead, {fixed:.1f} ms on one batch "
            f"read before; ratio {ratio:.3f} (quartiles {low:.3f} and {high:.3f}, {len(sides)} rounds)"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.folder is not None:
        main(asked.rows, asked.rounds, asked.folder)
    else:
        with tempfile.TemporaryDirectory() as made_in:
            main(asked.rows, asked.rounds, Path(made_in))
