"""The tasks of a preparation, one piece each, and their results in a work folder: what is there is not done again.

    extent-00007.json    rows and lines of the piece
    counts-00007/        how often each value was met, for vocabularies
    vocabularies/        made of all counts
    rows-00007/          the piece as a prepared dataset of its own
    failed.json          what is wrong with the data: it ends all who prepare them
    claim-*/ pulse-*     who does what (see claims.py)

A piece has its number among all pieces of all files, whatever was prepared before. Each result is written aside and
renamed, so that a preparation that was killed goes on where it was.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dlrmx.data.output import aside, sync
from dlrmx.data.source import Extent, FileSource, Piece, Told
from dlrmx.data.writer import DatasetWriter, Identity, row_facts
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.schema import Criteo, Recipe

Kind = Literal["extent", "counts", "rows"]


@dataclass(frozen=True)
class Task:
    """One piece, and what is to be found out of it; `before`: of all that lies before the piece."""

    kind: Kind
    number: int
    piece: Piece
    before: Extent

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number:05d}"

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "piece": {**asdict(self.piece), "path": str(self.piece.path)}})

    @classmethod
    def from_json(cls, text: str) -> "Task":
        raw: dict[str, Any] = json.loads(text)
        cuts = tuple((row, split) for row, split in raw["piece"]["cuts"])
        piece = Piece(**{**raw["piece"], "path": Path(raw["piece"]["path"]), "cuts": cuts})
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

    @property
    def failed(self) -> Path:
        return self.path / "failed.json"

    def is_done(self, task: Task) -> bool:
        """Whether the result is there. Extents are read; the sums of rows are checked when they are joined."""
        path = self.result(task.kind, task.number)
        if task.kind == "extent" and path.exists():
            try:
                self.extent(task.number)
            except (ValueError, TypeError):
                path.unlink(missing_ok=True)
        return path.exists()

    def has_results(self) -> bool:
        """Whether there is anything that a later preparation need not do."""
        return any(not path.name.startswith((".", "claim-", "pulse-", "failed")) for path in self.path.glob("*"))

    def fail(self, error: InputError) -> None:
        """Tell all who work here what is wrong with the data."""
        with aside(self.failed) as path:
            path.write_text(json.dumps([asdict(problem) for problem in error.problems]))

    def refuse_failed(self) -> None:
        """Raises InputError where another process found that the data is bad."""
        if self.failed.exists():
            raise InputError([Problem(**problem) for problem in json.loads(self.failed.read_text())])


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
            sync(path)
        told(extent.rows)
    elif task.kind == "counts":
        with aside(target) as path:
            path.mkdir()
            source.count(task.piece, task.before, path, told)
            sync(path)
    else:
        with aside(target) as path:
            path.mkdir()
            _write_rows(source, work, identity, task, path, told)


def _write_rows(source: FileSource, work: WorkFolder, identity: Identity, task: Task, folder: Path, told: Told) -> None:
    with DatasetWriter(folder, source.layout) as writer:
        for part in source.parts(task.piece, task.before, work.vocabularies):
            writer.append(part)
            told(len(part.splits))
        writer.finish(identity, source.losses, row_facts(writer, source.bad_rows, source.policy), file=task.piece.path)
