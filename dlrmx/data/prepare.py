"""Preparing a recipe's data: written aside, then published by a rename; done once for all runs that share it."""

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlrmx.data.files import find_files
from dlrmx.data.hashing import TEXT_HASH
from dlrmx.data.manifest import VERSION, read_manifest
from dlrmx.data.permute import PERMUTATION
from dlrmx.data.splits import SPLIT_HASH
from dlrmx.data.writer import DatasetWriter, Source
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Criteo, Recipe, Synthetic, Tabular
from dlrmx.runs.layout import prepared_dir

# What is being done, rows done, rows in all where known.
Progress = Callable[[str, int, int | None], None]

PARTIAL = ".partial-"
# A preparation that wrote nothing for so long is dead; what it left is removed.
STALE_SECONDS = 24 * 3600


def data_fingerprint(recipe: Recipe) -> str:
    """12 hex digits: what decides the content of the prepared data. For files: their paths, sizes and times, too.

    Raises InputError where a pattern matches no file.
    """
    # Left out: how the rows are read (order, tail) and what becomes of the ids of tables (pooling; a teacher knows it).
    unread = set() if isinstance(recipe.data, Synthetic) else {"pooling"}
    what: dict[str, Any] = {
        "version": [VERSION, PERMUTATION, TEXT_HASH, SPLIT_HASH],
        "data": recipe.data.model_dump(exclude={"order", "tail", "files"}),
        "dense": {name: column.model_dump() for name, column in recipe.dense.items()},
        "features": {name: feature.model_dump(exclude=unread) for name, feature in recipe.features.items()},
        "tables": {name: [table.rows, table.bad_ids] for name, table in recipe.tables.items()},
        "source": recipe.seed if isinstance(recipe.data, Synthetic) else _source_files(recipe.data),
    }
    # As lists: the order of dense columns and features is part of the content.
    text = json.dumps([[key, list(value.items()) if isinstance(value, dict) else value] for key, value in what.items()])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _source_files(data: Tabular | Criteo) -> list[list[str | int]]:
    stats = [(path, path.stat()) for path in find_files(data)]
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def prepared_path(recipe: Recipe, root: Path) -> Path:
    """Where the recipe's data lies once prepared."""
    return prepared_dir(root, data_fingerprint(recipe))


def prepare(recipe: Recipe, root: Path, *, progress: Progress | None = None) -> Path:
    """The folder of the recipe's prepared data, made unless it is there. Several processes may prepare it at once.

    Raises InputError where the data is bad, by file and row, or what lies there is damaged.
    """
    target = prepared_path(recipe, root)
    if target.exists():
        _check(target)
        return target
    report = progress or _silent
    source = _source(recipe, report)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        partial = target.parent / f"{PARTIAL}{os.getpid()}-{secrets.token_hex(4)}"
        partial.mkdir()
    except OSError as error:
        raise _cannot_write(target, error) from None
    try:
        _write(source, partial, target.name, report)
        _publish(partial, target)
    except OSError as error:
        raise _cannot_write(target, error) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _source(recipe: Recipe, report: Progress) -> Source:
    if isinstance(recipe.data, Synthetic):
        from dlrmx.data.synthetic import SyntheticSource

        return SyntheticSource(recipe)
    if isinstance(recipe.data, Criteo):
        from dlrmx.data.criteo import CriteoSource

        return CriteoSource(recipe, report)
    try:
        from dlrmx.data.tabular import TabularSource
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise InputError("reading tables needs pyarrow", hint="pip install 'dlrmx[data]'") from None
    return TabularSource(recipe, report)


def _write(source: Source, folder: Path, fingerprint: str, report: Progress) -> None:
    with DatasetWriter(folder, source.layout) as writer:
        for part in source.parts():
            writer.append(part)
            report("prepare", sum(writer.rows.values()), source.rows)
        if writer.rows["train"] == 0:
            counts = ", ".join(f"{count} in {name}" for name, count in writer.rows.items())
            raise InputError(f"no rows to train on: {counts}", hint="Add rows, or lower data.split's fractions.")
        writer.finish(fingerprint, source)


def _publish(partial: Path, target: Path) -> None:
    """Rename; the folder of another process that was faster is as good as ours."""
    try:
        partial.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        _check(target)
        return
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check(target: Path) -> None:
    """Raises InputError unless `target` holds what its name says, each file with its size."""
    fingerprint = read_manifest(target).fingerprint
    if fingerprint != target.name:
        raise InputError(
            f"{target}: holds the data of fingerprint {fingerprint}", hint=f"Remove {target} and prepare again."
        )


def _remove_stale(folder: Path) -> None:
    """Remove what preparations that were killed left, long ago."""
    for partial in folder.glob(f"{PARTIAL}*"):
        newest = max((path.stat().st_mtime for path in [partial, *partial.iterdir()]), default=0.0)
        if time.time() - newest > STALE_SECONDS:
            shutil.rmtree(partial, ignore_errors=True)


def _cannot_write(target: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write prepared data below {target.parent}: {error.strerror or error}",
        hint="Free some space, or choose another root in the cluster's profile.",
    )


def _silent(what: str, done: int, total: int | None) -> None:
    """Progress that nobody watches."""
