"""Prepares files piece by piece, on all cores: how many rows each has, what values there are, then the rows."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dlrmx.data.manifest import read_manifest
from dlrmx.data.pool import run_tasks
from dlrmx.data.source import Extent, FileSource, Piece
from dlrmx.data.vocabulary_files import take_vocabularies
from dlrmx.data.work import Kind, Task, WorkFolder, aside, open_files
from dlrmx.data.writer import Identity
from dlrmx.recipe.schema import Recipe

Progress = Callable[[str, int, int | None], None]


def prepare_pieces(
    recipe: Recipe, identity: Identity, work: WorkFolder, earlier: Path | None, report: Progress
) -> list[Path]:
    """The prepared datasets that make up the recipe's, in order: perhaps an earlier one, then one for each new piece.

    `earlier`: prepared data of some of the files, the first ones. A vocabulary is of all files: then it is of no use.
    Raises InputError where the data is bad.
    """
    source = open_files(recipe, identity)
    pieces, first = source.pieces(), 0
    done: list[Path] = []
    if earlier is not None and not source.counted:
        manifest = read_manifest(earlier)
        known = {path for path, _, _ in manifest.sources}
        pieces = [piece for piece in pieces if str(piece.path) not in known]
        done, first = [earlier], manifest.rows.read
    work.path.mkdir(exist_ok=True)
    tasks = _Tasks(recipe, identity, work, report)
    before, total = _survey(tasks, source, pieces, first)
    if source.counted and identity.trained_on:
        _make_vocabularies(work, lambda folder: take_vocabularies(Path(identity.trained_on), folder))
    elif source.counted:
        tasks.run("counts", "count", pieces, before, total)
        counts = [work.result("counts", number) for number in range(len(pieces))]
        _make_vocabularies(work, lambda folder: _join_counts(source, counts, folder))
    tasks.run("rows", "prepare", pieces, before, total)
    return [*done, *(work.result("rows", number) for number in range(len(pieces)))]


class _Tasks:
    """Runs one kind of task after the other, for all pieces whose result is not there."""

    def __init__(self, recipe: Recipe, identity: Identity, work: WorkFolder, report: Progress) -> None:
        self._recipe, self._identity, self.work, self._report = recipe, identity, work, report

    def run(self, kind: Kind, what: str, pieces: Sequence[Piece], before: Sequence[Extent], total: int | None) -> None:
        tasks = [Task(kind, number, *both) for number, both in enumerate(zip(pieces, before, strict=True))]
        left = [task for task in tasks if not self.work.is_done(kind, task.number)]
        rows = 0 if total is None else sum(self._rows(task) for task in tasks) - sum(self._rows(task) for task in left)

        def told(count: int) -> None:
            nonlocal rows
            rows += count
            self._report(what, rows, total)

        run_tasks(self._recipe, self.work, self._identity, left, told)

    def _rows(self, task: Task) -> int:
        return self.work.extent(task.number).rows if task.kind != "extent" else 0


def _survey(tasks: _Tasks, source: FileSource, pieces: Sequence[Piece], first: int) -> tuple[list[Extent], int | None]:
    """What lies before each piece (rows of all files, lines of its own), and the rows of all pieces.

    Of one piece, nothing needs to be known beforehand.
    """
    if len(pieces) == 1:
        return [Extent(first)], None
    tasks.run("extent", "survey", pieces, [Extent()] * len(pieces), None)
    before, rows, lines = [], first, 0
    for number, piece in enumerate(pieces):
        extent = tasks.work.extent(number)
        lines = 0 if piece.begin == 0 else lines
        before.append(Extent(rows, lines))
        rows, lines = rows + extent.rows, lines + extent.lines
    return before, rows - first


def _make_vocabularies(work: WorkFolder, make: Callable[[Path], None]) -> None:
    if not work.vocabularies.exists():
        with aside(work.vocabularies) as folder:
            make(folder)


def _join_counts(source: FileSource, counts: list[Path], folder: Path) -> None:
    folder.mkdir()
    source.join_counts(counts, folder)
