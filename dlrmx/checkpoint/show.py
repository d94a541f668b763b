"""Describes a checkpoint: its tensors, files, plan and state, for `checkpoints show`. No torch."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dlrmx.checkpoint.manifest import CheckpointManifest, Json, read_manifest
from dlrmx.plan.shards import Plan, TablePlan
from dlrmx.units import format_number_of


@dataclass(frozen=True)
class TensorLine:
    """One tensor: global shape, safetensors' dtype, bytes over all its parts, and how many parts (rectangles)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    parts: int


@dataclass(frozen=True)
class FileLine:
    """One rank's file: its bytes, and how many parts of tensors it holds."""

    name: str
    bytes: int
    parts: int


@dataclass(frozen=True)
class Description:
    """A checkpoint at a glance. plan: one line per table; state: the rest of what the run saved beside its tensors."""

    path: Path
    step: int
    attempt: int
    format: int
    bytes: int
    tensors: tuple[TensorLine, ...]
    files: tuple[FileLine, ...]
    plan: tuple[str, ...]
    state: dict[str, Json]


def describe(directory: Path) -> Description:
    """What the manifest in `directory` says. Raises InputError where it is missing, damaged or foreign."""
    manifest = read_manifest(directory)
    parts = Counter(entry.file for tensor in manifest.tensors.values() for entry in tensor.entries)
    return Description(
        path=directory,
        step=manifest.step,
        attempt=manifest.attempt,
        format=manifest.format,
        bytes=manifest.bytes,
        tensors=tuple(
            TensorLine(name, tensor.shape, tensor.dtype, tensor.bytes, len(tensor.entries))
            for name, tensor in manifest.tensors.items()
        ),
        files=tuple(FileLine(name, info.bytes, parts[name]) for name, info in manifest.files.items()),
        plan=_plan_lines(manifest),
        state={key: value for key, value in manifest.state.items() if key != "plan"},
    )


def _plan_lines(manifest: CheckpointManifest) -> tuple[str, ...]:
    """`user: row_wise over 4 ranks`; state["plan"] is what Plan.to_json says, as an object."""
    if "plan" not in manifest.state:
        return ()
    try:
        plan = Plan.from_json(json.dumps(manifest.state["plan"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return (f"not readable by this version ({error})",)
    return tuple(
        f"{name}: {table.kind} over {_num_ranks(name, table, plan.world)}" for name, table in plan.tables.items()
    )


def _num_ranks(name: str, table: TablePlan, world: int) -> str:
    ranks = {rectangle.rank for rectangle in table.rectangles(name)} if table.strips else set(range(world))
    return format_number_of(len(ranks), "rank")
