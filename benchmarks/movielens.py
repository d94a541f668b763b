"""MovieLens-100K by five seeds: `dlrmx train` on two processes, and the same model in plain torch on one.

    make data
    .venv/bin/python benchmarks/movielens.py

Both sides take the same global batches from the same initial values. Prints a table and the machine; what it writes on
the way lies in a temporary folder.
"""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the reference lies there

import numpy as np
import torch

from dlrmx.data.batches import Split
from dlrmx.data.prepare import prepare
from dlrmx.errors import InputError
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import read_records
from dlrmx.train.metrics import binary_metrics
from dlrmx.train.schedule import rate_factor
from dlrmx.train.stream import Position, Stream
from reference import Reference

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes" / "movielens_100k.yaml"
FILE = ROOT / "datasets" / "movielens-100k.parquet"
SEEDS = (0, 1, 2, 3, 4)
DLRMX = str(Path(sys.executable).with_name("dlrmx"))


@dataclass(frozen=True)
class Result:
    """One training: the loss of each global batch, before its step; what the test split said; wall time in seconds."""

    losses: list[float]
    auc: float
    ne: float
    seconds: float


@dataclass(frozen=True)
class Pair:
    """One seed on both sides."""

    seed: int
    dlrmx: Result
    plain: Result

    @property
    def distance(self) -> float:
        """The largest relative difference of a step's losses."""
        pairs = zip(self.dlrmx.losses, self.plain.losses, strict=True)
        return max(abs(ours - theirs) / theirs for ours, theirs in pairs)


def train_dlrmx(seed: int, root: Path) -> Result:
    """The shipped recipe by the command line, two processes, a record for each step; the run lies in `root`."""
    began, name = time.monotonic(), f"seed-{seed}"
    settings = (f"seed={seed}", "log.every.steps=1", "cluster.workers_per_node=2", f"cluster.root={root}")
    command = [DLRMX, "train", str(RECIPE), "--name", name, *(word for one in settings for word in ("-s", one))]
    environment = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    records = read_records(RunPaths(root / name))
    losses = [record["loss"] for record in records if record["kind"] == "step"]
    final = next(record for record in records if record["kind"] == "evaluation" and record["final"])
    assert final["split"] == "test"
    return Result(losses, final["auc"], final["ne"], time.monotonic() - began)


def train_plain(recipe: Recipe, data: Path) -> Result:
    """The recipe in plain torch: no shards, no fused kernels, one process."""
    began = time.monotonic()
    reference, position, losses = Reference(recipe, dense_dim=len(recipe.dense)), Position(), []
    stream = Stream(Split(data, "train"), recipe, order_seed=recipe.seed, rank=0, world=1)
    while position.step < stream.total_steps:
        factor = rate_factor(recipe.optimizer.schedule, position.step)
        losses.append(reference.step(stream.slice_at(position).batch, factor))
        position = stream.after(position)
    test = Split(data, "test")
    batch = test.take(np.arange(test.rows, dtype=np.int64))
    found = binary_metrics(reference.predict(batch).numpy(), batch.labels)
    assert found.auc is not None and found.ne is not None
    return Result(losses, found.auc, found.ne, time.monotonic() - began)


def measure(seeds: Sequence[int], root: Path) -> list[Pair]:
    """Both sides for each seed, one after the other; needs FILE."""
    pairs = []
    for seed in seeds:
        recipe = load_recipe(RECIPE, [f"seed={seed}"]).recipe
        pairs.append(Pair(seed, train_dlrmx(seed, root), train_plain(recipe, prepare(recipe, root))))
    return pairs


def table(pairs: Sequence[Pair]) -> str:
    """A Markdown table: a line for each seed, then mean and standard deviation (n - 1) of each side."""
    columns = {
        "AUC dlrmx": [pair.dlrmx.auc for pair in pairs],
        "AUC plain": [pair.plain.auc for pair in pairs],
        "NE dlrmx": [pair.dlrmx.ne for pair in pairs],
        "NE plain": [pair.plain.ne for pair in pairs],
    }
    lines = [
        "| seed | " + " | ".join(columns) + " | losses differ by at most | seconds dlrmx | seconds plain |",
        "|---|" + "--:|" * (len(columns) + 3),
    ]
    for pair, values in zip(pairs, zip(*columns.values(), strict=True), strict=True):
        numbers = " | ".join(f"{value:.4f}" for value in values)
        times = f"{pair.dlrmx.seconds:.0f} | {pair.plain.seconds:.0f}"
        lines.append(f"| {pair.seed} | {numbers} | {pair.distance:.1e} | {times} |")
    for name, statistic in (("mean", statistics.mean), ("standard deviation", statistics.stdev)):
        lines.append(
            f"| {name} | " + " | ".join(f"{statistic(values):.4f}" for values in columns.values()) + " | | | |"
        )
    return "\n".join(lines)


def machine() -> str:
    """What it ran on, in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores, python = len(os.sched_getaffinity(0)), platform.python_version()
    return f"{names[0] if names else platform.machine()}, {cores} cores, Python {python}, torch {torch.__version__}"


def main() -> int:
    """Print the table; the exit code."""
    if not FILE.exists():
        print(f"{FILE} is not there: run `make data`", file=sys.stderr)
        return InputError.exit_code
    torch.set_num_threads(1)  # as each of dlrmx's processes
    with tempfile.TemporaryDirectory() as folder:
        pairs = measure(SEEDS, Path(folder))
    print(table(pairs))
    print(
        f"\n{len(pairs[0].plain.losses)} steps a seed; the losses' differences are relative; seconds are wall time, "
        "for dlrmx of the whole command."
    )
    print(machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
