"""Real training sessions without a launcher, for tests that compare ends: built, worked and read back here."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from dlrmx.checkpoint.read import open_checkpoint
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Plan
from dlrmx.recipe.fingerprint import fingerprint
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.layout import RunPaths
from dlrmx.train.build import build_parts
from dlrmx.train.session import Clock, Session, Task
from dlrmx.train.worker import work
from sharding_cases import make_plan

FEATURES: dict[str, dict[str, Any]] = {
    "a": {"table": "three"},
    "b": {"table": "seven", "pooling": "mean"},
    "c": {"table": "small"},
    "d": {"table": "wide"},
    "e": {"table": "wide", "pooling": "mean", "weights": "w"},
}
ROWS, BATCH = 4_000, 257  # 14 batches an epoch: 20 steps reach into the second
WARM = {"kind": "warmup_hold_decay", "warmup": 5, "hold": 5, "decay": 20}


def make_recipe(
    steps: int,
    *,
    sparse: str = "rowwise_adagrad",
    dense: str = "adamw",
    exchange: dict[str, Any] | None = None,
    checkpoint: dict[str, Any] | None = None,
    **train: Any,
) -> Recipe:
    """DCNv2 over odd tables, with everything on that a resume could forget."""
    return Recipe.model_validate(
        {
            "dlrmx": 1,
            "name": "odd",
            "data": {
                "kind": "synthetic",
                "rows": ROWS,
                "pooling": {"b": {"mean": 2, "max": 5}, "e": {"mean": 3, "max": 7}},
            },
            "dense": {"x": {}, "y": {}},
            "features": FEATURES,
            "tables": {
                "three": {"rows": 3, "dim": 64},
                "seven": {"rows": 7, "dim": 12},
                "small": {"rows": 1000, "dim": 4},
                "wide": {"rows": 1000, "dim": 64},
            },
            "model": {"kind": "dcnv2", "bottom": [8], "top": [8, 1], "cross_layers": 2, "cross_rank": 4},
            "optimizer": {
                "dense": {"kind": dense, "lr": 0.01},
                "sparse": {"kind": sparse, "lr": 0.05},
                "schedule": WARM,
            },
            "train": {"batch": BATCH, "stop": {"steps": steps}, "evaluate": {"every": {"steps": 7}}, **train},
            "log": {"every": {"steps": 3}},
            "exchange": exchange or {},
            "checkpoint": checkpoint or {},
        }
    )


def run_session(
    wire: Wire, root: Path, data: Path, recipe: Recipe, *, kind: str = "mix", checkpoint: Path | None = None
) -> Path:
    """Train a new run to its end on all ranks of `wire`; the path of its last checkpoint. Collective."""
    return train_plan(wire, root, data, recipe, make_plan(kind, wire.world), checkpoint)


def train_plan(wire: Wire, root: Path, data: Path, recipe: Recipe, plan: Plan, checkpoint: Path | None = None) -> Path:
    """As `run_session`, under a given plan."""
    number = 0
    if wire.rank == 0:
        run = create_run(root, recipe.name, None, fingerprint(recipe))
        claim_attempt(run)
        number = int(run.name.rpartition("-")[2])
    run = RunPaths(root / f"{recipe.name}-{wire.agree(number)}")
    task = Task(run, run.attempt(1), recipe, plan, data, checkpoint, None)
    parts = build_parts(recipe, plan, wire=wire, dense_dim=len(recipe.dense), device=torch.device("cpu"))
    work(Session(task, parts, Clock()))
    return max(run.checkpoints.glob("step-*"))


def tensors_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint, whole."""
    with open_checkpoint(checkpoint) as stored:
        return {name: stored.read(name) for name in stored.tensors}


def differing(one: Path, other: Path, *, leaving_out: Iterable[str] = ()) -> list[str]:
    """Names of the tensors and state entries that two checkpoints do not share to the bit."""
    left, right = tensors_of(one), tensors_of(other)
    assert left.keys() == right.keys()
    names = [name for name in left if name not in leaving_out and not torch.equal(left[name], right[name])]
    with open_checkpoint(one) as a, open_checkpoint(other) as b:
        return names + [key for key in a.state if key not in ("plan", "world") and a.state[key] != b.state[key]]
