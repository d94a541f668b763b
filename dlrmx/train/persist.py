"""What a checkpoint holds of this rank, and how it is put back: tables, dense part, optimizers, position, seed.

Names do not depend on the plan: table/<name>/weight, table/<name>/rowwise_adagrad.sum, dense/<parameter>,
dense_optimizer/<parameter>/<slot>. The sample order is counter-based, so the random state is its seed.
"""

import json
from collections.abc import Iterator, Mapping

import torch

from dlrmx import __version__
from dlrmx.checkpoint.manifest import Json
from dlrmx.checkpoint.read import Stored
from dlrmx.checkpoint.write import Piece
from dlrmx.errors import InputError
from dlrmx.plan.shards import Plan, Rectangle
from dlrmx.recipe.fingerprint import fingerprint
from dlrmx.recipe.schema import Recipe
from dlrmx.train.step import Parts
from dlrmx.train.stream import Position

FORWARD_TAU = "threshold/forward/tau"


def pieces(parts: Parts, recipe: Recipe) -> list[Piece]:
    """This rank's share of a checkpoint. What every rank holds alike is dealt out, one tensor to each in turn."""
    tables = [piece for held in parts.embeddings.held() for piece in _table_pieces(recipe, *held)]
    alike = [piece for copy in parts.embeddings.copies() for piece in _table_pieces(recipe, *copy)]
    alike += [_whole(name, tensor) for name, tensor in _dense(parts)]
    return [*tables, *alike[parts.wire.rank :: parts.wire.world], *_held_back(parts)]


def restore(parts: Parts, recipe: Recipe, stored: Stored, *, weights_only: bool = False) -> None:
    """Fill this rank's tensors from a checkpoint of any plan and number of ranks.

    weights_only leaves out all that has no part in a score: the optimizers, and what they wait for. Raises InputError
    naming a tensor that is missing or of another shape.
    """
    held = (*parts.embeddings.held(), *parts.embeddings.copies())
    for rectangle, weight, state in held:
        rows, cols = (rectangle.row_start, rectangle.row_end), (rectangle.col_start, rectangle.col_end)
        _check_shape(recipe, stored, rectangle.table)
        stored.read(f"table/{rectangle.table}/weight", rows=rows, cols=cols, out=weight)
        if state is not None and not weights_only:
            stored.read(_state_name(recipe, rectangle.table), rows=rows, cols=cols, out=state)
    for name, tensor in _dense(parts):
        scores = name.startswith("dense/") or (name == FORWARD_TAU and name in stored.tensors)
        if scores or not weights_only:
            stored.read(name, out=tensor)
    if not weights_only:
        for name, residual in parts.dense.residuals():
            _restore_residual(parts, stored, f"threshold/dense/{name}/residual", residual.view(-1))


def state(
    recipe: Recipe, plan: Plan, position: Position, order_seed: int, metrics: Mapping[str, float]
) -> dict[str, Json]:
    """What a checkpoint says beside its tensors."""
    return {
        "dlrmx": __version__,
        "torch": torch.__version__,
        "step": position.step,
        "epoch": position.epoch,
        "row": position.row,
        "order_seed": order_seed,
        "fingerprint": fingerprint(recipe),
        "plan": json.loads(plan.to_json()),
        "world": plan.world,
        "features": list(recipe.features),
        "metrics": dict(metrics),
    }


def position_of(stored: Stored) -> tuple[Position, int]:
    """Where a checkpoint's run goes on, and the seed of its sample order. Raises InputError where it does not say."""
    values = [stored.state.get(key) for key in ("step", "epoch", "row", "order_seed")]
    step, epoch, row, seed = (value if isinstance(value, int) else -1 for value in values)
    if min(step, epoch, row, seed) < 0:
        raise InputError(f"{stored.directory}: its state has no data position", hint="`dlrmx checkpoints verify` it")
    return Position(step, epoch, row), seed


def _table_pieces(
    recipe: Recipe, rectangle: Rectangle, weight: torch.Tensor, sums: torch.Tensor | None
) -> Iterator[Piece]:
    table, rows = recipe.tables[rectangle.table], (rectangle.row_start, rectangle.row_end)
    sliced = (rectangle.col_start, rectangle.col_end) != (0, table.dim)
    cols = (rectangle.col_start, rectangle.col_end) if sliced else None
    shape = (table.rows, table.dim)
    yield Piece(f"table/{rectangle.table}/weight", shape, rows, cols, weight)
    if sums is not None:
        per_row = sums.dim() == 1
        name = _state_name(recipe, rectangle.table)
        yield Piece(name, shape[:1] if per_row else shape, rows, cols, sums, per_row=per_row)


def _state_name(recipe: Recipe, table: str) -> str:
    return f"table/{table}/{recipe.optimizer.sparse.kind}.sum"


def _dense(parts: Parts) -> Iterator[tuple[str, torch.Tensor]]:
    yield from ((f"dense/{name}", tensor) for name, tensor in parts.dense.parameters())
    yield from ((f"dense_optimizer/{name}", tensor) for name, tensor in parts.dense.optimizer_state())
    if parts.dense.sparse is not None:
        yield "threshold/dense/tau", parts.dense.sparse.tau
    yield from ((f"threshold/{way}/tau", tau) for way, tau in parts.embeddings.exchange.thresholds())


def _held_back(parts: Parts) -> Iterator[Piece]:
    """What this rank held back of the dense gradients: row r of a tensor is rank r's."""
    rank, world = parts.wire.rank, parts.wire.world
    for name, residual in parts.dense.residuals():
        row = residual.view(1, -1)
        yield Piece(f"threshold/dense/{name}/residual", (world, row.shape[1]), (rank, rank + 1), None, row)


def _restore_residual(parts: Parts, stored: Stored, name: str, out: torch.Tensor) -> None:
    """This rank's row; on another number of ranks an equal share of their sum, so that nothing held back is lost."""
    every = stored.read(name)
    if len(every) == parts.wire.world:
        out.copy_(every[parts.wire.rank])
    else:
        out.copy_(every.sum(0) / parts.wire.world)


def _whole(name: str, tensor: torch.Tensor) -> Piece:
    rows = (0, tensor.shape[0]) if tensor.dim() else (0, 1)
    return Piece(name, tuple(tensor.shape), rows, None, tensor)


def _check_shape(recipe: Recipe, stored: Stored, table: str) -> None:
    expected = (recipe.tables[table].rows, recipe.tables[table].dim)
    info = stored.tensors.get(f"table/{table}/weight")
    if info is not None and tuple(info.shape) != expected:
        raise InputError(
            f"{stored.directory}: table {table} has {info.shape[0]:,} rows of dim {info.shape[1]}, "
            f"the recipe {expected[0]:,} of dim {expected[1]}",
            hint=f"set tables.{table} as the checkpoint has it",
        )
