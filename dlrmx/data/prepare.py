"""Preparing a recipe's data: written aside, then published by a rename; done once for all runs that share it."""

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dlrmx.data.claims import Claims
from dlrmx.data.faults import Tally
from dlrmx.data.files import find_files, refuse_changed
from dlrmx.data.hashing import TEXT_HASH
from dlrmx.data.hot_rows import with_hot_rows
from dlrmx.data.manifest import VERSION, Manifest, read_manifest, write_manifest
from dlrmx.data.merge import Damaged, merge
from dlrmx.data.output import look_afresh
from dlrmx.data.permute import PERMUTATION
from dlrmx.data.pieces import Preparation, Telling, prepare_pieces
from dlrmx.data.pool import WorkerLost
from dlrmx.data.source import Unreadable
from dlrmx.data.splits import SPLIT_HASH, check_files
from dlrmx.data.vocabulary_files import keep_vocabularies
from dlrmx.data.work import WorkFolder
from dlrmx.data.writer import DatasetWriter, Identity, row_facts
from dlrmx.errors import DlrmxError, InputError
from dlrmx.recipe.schema import Criteo, Recipe, Synthetic, Tabular
from dlrmx.runs.layout import prepared_dir

# What is being done, rows done, rows in all where known.
Progress = Callable[[str, int, int | None], None]

PARTIAL = ".partial-"
WORK = ".work-"
# A preparation that wrote nothing for so long is dead; what it left is removed.
STALE_SECONDS = 24 * 3600


def data_fingerprint(recipe: Recipe, trained_on: Path | None = None) -> str:
    """12 hex digits: what decides the content of the prepared data. For files: their paths, sizes and times, too.

    trained_on: as in `prepare`; it is known by its name, its own fingerprint.
    Raises InputError where a pattern matches no file.
    """
    return data_identity(recipe, trained_on).fingerprint


def data_identity(recipe: Recipe, trained_on: Path | None = None) -> Identity:
    """What the recipe's prepared data are of, as `data_fingerprint`."""
    # Left out: how the rows are read (order, tail) and what becomes of the ids of tables (pooling; a teacher knows it).
    unread = set() if isinstance(recipe.data, Synthetic) else {"pooling"}
    what: dict[str, Any] = {
        "version": [VERSION, PERMUTATION, TEXT_HASH, SPLIT_HASH],
        "data": recipe.data.model_dump(exclude={"order", "tail", "files"}),
        "dense": {name: column.model_dump() for name, column in recipe.dense.items()},
        "features": {name: feature.model_dump(exclude=unread) for name, feature in recipe.features.items()},
        "tables": {name: [table.rows, table.bad_ids] for name, table in recipe.tables.items()},
        "seed": recipe.seed if isinstance(recipe.data, Synthetic) else None,
        "trained_on": None if trained_on is None else trained_on.name,
    }
    # As lists: the order of dense columns and features is part of the content.
    transform = _digest(
        [[key, list(value.items()) if isinstance(value, dict) else value] for key, value in what.items()]
    )
    sources = [] if isinstance(recipe.data, Synthetic) else _source_files(recipe.data)
    return Identity(_digest([transform, sources]), transform, sources, str(trained_on or ""))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def _source_files(data: Tabular | Criteo) -> list[list[str | int]]:
    stats = [(path, path.stat()) for path in find_files(data)]
    if data.split.by == "files":
        check_files([str(path) for path, _ in stats], data.split)
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def prepared_path(recipe: Recipe, root: Path, trained_on: Path | None = None) -> Path:
    """Where the recipe's data lies once prepared."""
    return prepared_dir(root, data_fingerprint(recipe, trained_on))


def prepare(
    recipe: Recipe,
    root: Path,
    *,
    progress: Progress | None = None,
    trained_on: Path | None = None,
    node: int = 0,
    nodes: int = 1,
) -> Path:
    """The folder of the recipe's prepared data, made unless it is there.

    Several processes may prepare it at once, on one machine or on many that share `root`: they divide the files'
    pieces among them, and all return once the data is there. `node` of `nodes` only says where to begin, so that each
    machine reads files of its own as long as there are any.

    trained_on: the prepared data of a model that is to score these rows. Its vocabularies make their ids, rows need no
    label (it is NaN then), and a bad row stays, without one, where the recipe would skip it: one row per row of the
    files. Raises InputError where the data is bad, by file and row, or what lies there is damaged.
    """
    identity = data_identity(recipe, trained_on)
    target = prepared_dir(root, identity.fingerprint)
    if target.exists():
        check_prepared(target)
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        _prepare(recipe, identity, target, progress or _silent, Fraction(node, nodes))
    except OSError as error:
        if not _is_there(target):
            refuse_changed(identity.sources)
            raise _cannot_write(target, error) from None
        # Another process was faster, and has removed what both worked with, but for what came into it meanwhile.
        shutil.rmtree(_work_folder(target), ignore_errors=True)
        check_prepared(target)
    return target


def _prepare(recipe: Recipe, identity: Identity, target: Path, report: Progress, begin: Fraction) -> None:
    """With whoever else prepares it. What a killed preparation has done is not done again; bad data leaves nothing."""
    work = WorkFolder(_work_folder(target))
    work.path.mkdir(exist_ok=True)
    claims = Claims(work.path)
    try:
        with claims:
            work.failed.unlink(missing_ok=True)
            earlier, tell = _earlier(identity, target.parent), Telling(report)
            preparation = Preparation(recipe, identity, work, claims, earlier, begin, tell)
            if not _is_there(target):
                _prepare_rows(preparation, target)
    finally:
        # The last to leave puts out the light, unless there is something to go on with.
        useless = work.failed.exists() or not work.has_results()
        if _is_there(target) or (useless and claims.alone()):
            shutil.rmtree(work.path, ignore_errors=True)


def _prepare_rows(preparation: Preparation, target: Path) -> None:
    make = _make_synthetic if isinstance(preparation.recipe.data, Synthetic) else _prepare_and_join
    try:
        make(preparation, target)
    except (Unreadable, WorkerLost, Damaged):
        raise  # this says nothing of the other pieces
    except InputError as error:
        if not _is_there(target):
            preparation.work.fail(error)
            raise
        check_prepared(target)


def _make_synthetic(preparation: Preparation, target: Path) -> None:
    from dlrmx.data.synthetic import SyntheticSource

    source = SyntheticSource(preparation.recipe)
    if not preparation.claims.take_or_wait("rows", lambda: _is_there(target), preparation.wait):
        check_prepared(target)
        return
    with _partial(target) as folder:
        with DatasetWriter(folder, source.layout) as writer:
            for part in source.parts():
                writer.append(part)
                preparation.tell("prepare", sum(writer.rows.values()), source.rows)
            _refuse_no_training_rows(writer.rows)
            writer.finish(preparation.identity, source.losses, row_facts(writer, Tally(), "fail"))
        write_manifest(folder, with_hot_rows(folder, read_manifest(folder)))
        _publish(folder, target)


def _work_folder(target: Path) -> Path:
    return target.parent / f"{WORK}{target.name}"


def _prepare_and_join(preparation: Preparation, target: Path) -> None:
    """Pieces with others, then the joined data by one of us."""
    work, claims = preparation.work, preparation.claims
    folders = prepare_pieces(preparation)
    if not claims.take_or_wait("join", lambda: _is_there(target), preparation.wait):
        check_prepared(target)
        return
    try:
        _join(preparation, folders, target)
    except Damaged as damaged:
        if damaged.folder.parent != work.path:
            raise
        shutil.rmtree(damaged.folder)
        claims.drop(damaged.folder.name)
        _join(preparation, prepare_pieces(preparation), target)


def _join(preparation: Preparation, folders: list[Path], target: Path) -> None:
    identity = preparation.identity
    with _partial(target) as folder:
        manifest = replace(merge(folders, folder), fingerprint=identity.fingerprint, sources=identity.sources)
        kept = keep_vocabularies(preparation.work.vocabularies, folder)
        manifest = replace(manifest, files=manifest.files | kept)
        if manifest.rows.read == 0:
            files = f"the {len(identity.sources)} file(s) of data.files"
            raise InputError(f"{identity.sources[0][0]}: no rows in {files}")
        _refuse_no_good_rows(manifest)
        _refuse_no_training_rows({name: split.rows for name, split in manifest.splits.items()})
        write_manifest(folder, with_hot_rows(folder, manifest))
        refuse_changed(identity.sources)
        _publish(folder, target)


def _is_there(target: Path) -> bool:
    """Whether it is, whoever made it: also where a network file system remembers that it was not."""
    look_afresh(target.parent)
    return target.exists()


def _earlier(identity: Identity, folder: Path) -> Path | None:
    """The largest prepared data that ours begins with: made alike, of the first of our files."""
    found: list[tuple[int, Path]] = []
    for path in folder.glob("[0-9a-f]*"):
        try:
            manifest = read_manifest(path)
        except InputError:
            continue
        count = len(manifest.sources)
        if manifest.transform == identity.transform and count > 0 and manifest.sources == identity.sources[:count]:
            found.append((count, path))
    return max(found)[1] if found else None


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """A folder beside `target` to write to, removed at the end unless it was renamed."""
    partial = target.parent / f"{PARTIAL}{os.getpid()}-{secrets.token_hex(4)}"
    partial.mkdir()
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _refuse_no_good_rows(manifest: Manifest) -> None:
    rows = manifest.rows
    if rows.policy == "skip" and rows.bad == rows.read:
        what = f"no rows to train on: all {rows.read:,} are bad, and data.bad_rows leaves them out; {rows.first[0]}"
        raise InputError(what, hint="Look at these rows, and at what the recipe says of their columns.")


def _refuse_no_training_rows(rows: dict[str, int]) -> None:
    if rows["train"] == 0:
        counts = ", ".join(f"{count} in {name}" for name, count in rows.items())
        raise InputError(f"no rows to train on: {counts}", hint="Add rows, or lower data.split's fractions.")


def _publish(partial: Path, target: Path) -> None:
    """Rename; the folder of another process that was faster is as good as ours."""
    try:
        partial.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        check_prepared(target)
        return
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_prepared(target: Path) -> Manifest:
    """The manifest. Raises InputError unless `target` holds what its name says, each file with its size."""
    manifest = read_manifest(target)
    if manifest.fingerprint != target.name:
        raise InputError(
            f"{target}: holds the data of fingerprint {manifest.fingerprint}",
            hint=f"Remove {target} and prepare again.",
        )
    return manifest


def _remove_stale(folder: Path) -> None:
    """Remove what preparations that were killed left, long ago."""
    for partial in [*folder.glob(f"{PARTIAL}*"), *folder.glob(f"{WORK}*")]:
        with suppress(FileNotFoundError):  # somebody works there
            newest = max(path.stat().st_mtime for path in [partial, *partial.iterdir()])
            if time.time() - newest > STALE_SECONDS:
                shutil.rmtree(partial, ignore_errors=True)


def _cannot_write(target: Path, error: OSError) -> DlrmxError:
    return DlrmxError(
        f"cannot write prepared data below {target.parent}: {error.strerror or error}",
        hint="Free some space, or choose another root in the cluster's profile. What is done is not done again.",
    )


def _silent(what: str, done: int, total: int | None) -> None:
    """Progress that nobody watches."""
