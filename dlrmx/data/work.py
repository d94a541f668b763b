"""The tasks of a preparation, one piece each, and their results in a work folder: what is there is not done again.

    extent-00007.json    rows and lines of the piece
    counts-00007/        how often each value was met, for vocabularies
    vocabularies/        made of all counts
    rows-00007/          the piece as a prepared dataset of its own

Each is written aside and renamed, so that a preparation that was killed goes on where it was.
"""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dlrmx.data.manifest import verify
from dlrmx.data.source import Extent, FileSource, Piece, Told
from dlrmx.data.writer import DatasetWriter, Identity, row_facts
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Criteo, Recipe

Kind = Literal["extent", "counts", "rows"]


@dataclass(frozen=True)
class Task:
    """One piece, and what is to be found out of it; `before`: of all that lies before the piece."""

    kind: Kind
    number: int
    piece: Piece
    before: Extent

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "piece": {**asdict(self.piece), "path": str(self.piece.path)}})

    @classmethod
    def from_json(cls, text: str) -> "Task":
        raw: dict[str, Any] = json.loads(text)
        piece = Piece(**{**raw["piece"], "path": Path(raw["piece"]["path"])})
        return cls(raw["kind"], raw["number"], piece, Extent(**raw["before"]))


@dataclass(frozen=True)
class WorkFolder:
    """The names in a work folder."""

    path: Path

    def result(self, kind: Kind, number: int) -> Path:
        return self.path / f"{kind}-{number:05d}{'.json' if kind == 'extent' else ''}"

    @property
    def vocabularies(self) -> Path:
        return self.path / "vocabularies"

    def extent(self, number: int) -> Extent:
        return Extent(**json.loads(self.result("extent", number).read_text()))

    def is_done(self, kind: Kind, number: int) -> bool:
        """Whether the result is there, whole; a damaged one is removed."""
        path = self.result(kind, number)
        if not path.exists():
            return False
        try:
            if kind == "rows":
                verify(path)
            elif kind == "extent":
                self.extent(number)
        except (InputError, ValueError, TypeError):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
            return False
        return True


def open_files(recipe: Recipe, identity: Identity) -> FileSource:
    """The files of a recipe. Raises InputError where pyarrow is needed, and absent."""
    scored = bool(identity.trained_on)
    if isinstance(recipe.data, Criteo):
        from dlrmx.data.criteo import CriteoSource

        return CriteoSource(recipe, scored=scored)
    try:
        from dlrmx.data.tabular import TabularSource
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise InputError("reading tables needs pyarrow", hint="pip install 'dlrmx[data]'") from None
    return TabularSource(recipe, scored=scored)


def run_task(files: FileSource, work: WorkFolder, identity: Identity, task: Task, told: Told) -> None:
    """Do a task; its result is in the work folder then. Raises InputError where the data is bad."""
    source, target = files.anew(), work.result(task.kind, task.number)
    if task.kind == "extent":
        extent = source.extent(task.piece)
        with aside(target) as path:
            path.write_text(json.dumps(asdict(extent)))
        told(extent.rows)
    elif task.kind == "counts":
        with aside(target) as path:
            path.mkdir()
            source.count(task.piece, task.before, path, told)
    else:
        with aside(target) as path:
            path.mkdir()
            _write_rows(source, work, identity, task, path, told)


def _write_rows(source: FileSource, work: WorkFolder, identity: Identity, task: Task, folder: Path, told: Told) -> None:
    with DatasetWriter(folder, source.layout) as writer:
        for part in source.parts(task.piece, task.before, work.vocabularies):
            writer.append(part)
            told(len(part.splits))
        writer.finish(identity, source.losses, row_facts(writer, source.bad_rows, source.policy))


@contextmanager
def aside(target: Path) -> Iterator[Path]:
    """A path to write to, that becomes `target`; another process's result is as good as ours."""
    path = target.parent / f".{target.name}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        yield path
        path.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    finally:
        shutil.rmtree(path, ignore_errors=True)
