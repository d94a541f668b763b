"""Runs, tensors and layouts that the tests of checkpoints share."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dlrmx.checkpoint.manifest import Json
from dlrmx.checkpoint.write import Piece, Saved, save
from dlrmx.runs.layout import RunPaths

TABLES = {f"r{rows}d{dim}": (rows, dim) for rows in (3, 7, 1000) for dim in (4, 12, 64)}
WORLDS = (1, 2, 3, 4, 5)
LAYOUTS = ("table_wise", "row_wise", "column_wise", "grid")

Rectangle = tuple[int, int, int, int]  # row_start, row_end, col_start, col_end


def make_run(folder: Path, attempts: int = 1) -> RunPaths:
    run = RunPaths(folder / "run-1")
    for number in range(1, attempts + 1):
        run.attempt(number).dir.mkdir(parents=True)
    return run


def weight(table: str) -> torch.Tensor:
    """Every element its own number; fp16 where the dim is 12."""
    rows, dim = TABLES[table]
    values = torch.rand(rows, dim, generator=torch.Generator().manual_seed(rows * 100 + dim))
    return values.half() if dim == 12 else values


def row_sum(table: str, col_start: int, col_end: int) -> torch.Tensor:
    """(rows,): what the row-wise sum of a slice is in these tests: thousandths, different for each slice."""
    return torch.arange(TABLES[table][0]) / 1000 + col_start + 2 * col_end


def layout(kind: str, table: str, world: int) -> list[tuple[int, Rectangle]]:
    """(rank, rectangle) of a table; with fewer rows than ranks some ranks hold nothing, or rows [a, a)."""
    rows, dim = TABLES[table]
    row_cuts = [rank * rows // world for rank in range(world + 1)]
    slices = min(world, dim // 4)
    col_cuts = [4 * (part * (dim // 4) // slices) for part in range(slices + 1)]
    if kind == "table_wise":
        return [(dim // 4 % 3 % world, (0, rows, 0, dim))]  # the fourth and fifth rank get nothing
    if kind == "row_wise":
        return [(rank, (row_cuts[rank], row_cuts[rank + 1], 0, dim)) for rank in range(world)]
    if kind == "column_wise":
        return [(part, (0, rows, col_cuts[part], col_cuts[part + 1])) for part in range(slices)]
    half = dim // 8 * 4  # grid; of dim 4 the left half has no columns
    sides = [(0, half), (half, dim)]
    return [(rank, (row_cuts[rank], row_cuts[rank + 1], *side)) for rank in range(world) for side in sides]


def pieces_of(kind: str, world: int, rank: int) -> list[Piece]:
    """What a rank holds of all tables and their row-wise sums under a layout."""
    pieces = []
    for table, (rows, dim) in TABLES.items():
        for owner, (row_start, row_end, col_start, col_end) in layout(kind, table, world):
            if owner == rank:
                span, cols = (row_start, row_end), None if (col_start, col_end) == (0, dim) else (col_start, col_end)
                data = weight(table)[row_start:row_end, col_start:col_end]
                sums = row_sum(table, col_start, col_end)[row_start:row_end]
                pieces.append(Piece(f"table/{table}/weight", (rows, dim), span, cols, data))
                pieces.append(Piece(f"table/{table}/rowwise_adagrad.sum", (rows,), span, cols, sums, per_row=True))
    return pieces


def whole(name: str, data: torch.Tensor) -> Piece:
    shape = tuple(data.shape)
    return Piece(name, shape, (0, shape[0] if shape else 1), None, data)


def save_all(run: RunPaths, group: dist.ProcessGroup | None, step: int, pieces: list[Piece], **options: Any) -> Saved:
    state: dict[str, Json] = options.pop("state", {"step": step, "row": 32 * step})
    settings: dict[str, Any] = {"attempt": 1, "on_phase": lambda phase: None, **options}
    return save(run, step=step, pieces=pieces, state=state, group=group, **settings)


def save_small(run: RunPaths, step: int, *, attempt: int = 1, ne: float | None = None) -> Path:
    """A complete checkpoint of one process: a table cut in two, a scalar; ne: its evaluation's result."""
    table = torch.arange(40, dtype=torch.float32).reshape(10, 4) + step
    pieces = [
        Piece("table/user/weight", (10, 4), (0, 6), None, table[:6]),
        Piece("table/user/weight", (10, 4), (6, 10), None, table[6:]),
        whole("dense_optimizer/step", torch.tensor(step)),
    ]
    state: dict[str, Json] = {"step": step, "row": 32 * step, "metrics": {"validation.ne": ne, "validation.auc": ne}}
    return save_all(run, None, step, pieces, attempt=attempt, state=state).path


def flip(path: Path, offset: int) -> None:
    """Turn one bit of one byte."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
