"""Prepares files piece by piece, on all cores: how many rows each has, what values there are, then the rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from dlrmx.data.claims import Claims
from dlrmx.data.manifest import read_manifest
from dlrmx.data.output import aside, sync
from dlrmx.data.pool import run_tasks
from dlrmx.data.share import Share
from dlrmx.data.source import Extent, FileSource, Piece
from dlrmx.data.splits import file_cuts, fraction_cuts
from dlrmx.data.vocabulary_files import take_vocabularies
from dlrmx.data.work import Kind, Task, WorkFolder, open_files
from dlrmx.data.writer import Identity
from dlrmx.recipe.schema import Recipe, Split

Progress = Callable[[str, int, int | None], None]
Numbered = dict[int, Piece]


class Telling:
    """Progress, and what was told last for as long as others do what is left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last: tuple[str, int, int | None] = ("prepare", 0, None)

    def __call__(self, what: str, done: int, total: int | None) -> None:
        self._last = (what, done, total)
        self._progress(*self._last)

    def again(self) -> None:
        self._progress(*self._last)


@dataclass(frozen=True)
class Preparation:
    """What a process needs to do its share.

    `earlier`: prepared data of some of the files, the first ones. A vocabulary is of all files: then it is of no use.
    `begin`: where among the pieces this process begins to take them, from 0 to below 1.
    """

    recipe: Recipe
    identity: Identity
    work: WorkFolder
    claims: Claims
    earlier: Path | None
    begin: Fraction
    tell: Telling

    def wait(self) -> None:
        """While others do what is left. Raises InputError where they found that the data is bad."""
        self.work.refuse_failed()
        self.tell.again()


def prepare_pieces(preparation: Preparation) -> list[Path]:
    """The prepared datasets that make up the recipe's, in order: perhaps an earlier one, then one for each new piece.

    Raises InputError where the data is bad.
    """
    source, work = open_files(preparation.recipe, preparation.identity), preparation.work
    pieces, first = dict(enumerate(source.pieces())), 0
    done: list[Path] = []
    split = preparation.recipe.data.split
    # Rows added at the end change the split of earlier ones.
    if preparation.earlier is not None and not source.counted and split.by != "fraction":
        manifest = read_manifest(preparation.earlier)
        known = {path for path, _, _ in manifest.sources}
        pieces = {number: piece for number, piece in pieces.items() if str(piece.path) not in known}
        done, first = [preparation.earlier], manifest.rows.read
    before, total = _survey(preparation, pieces, first)
    if split.by != "hash":
        pieces = _with_cuts(preparation, split, pieces, before)
    if source.counted:
        _count(preparation, source, pieces, before, total)
    _run(preparation, "rows", "prepare", pieces, before, total)
    return [*done, *(work.result("rows", number) for number in pieces)]


def _run(
    preparation: Preparation, kind: Kind, what: str, pieces: Numbered, before: dict[int, Extent], total: int | None
) -> None:
    """Do the tasks of one kind, of all pieces whose result is not there; others may do them with us."""
    rows = 0

    def told(count: int) -> None:
        nonlocal rows
        rows += count
        preparation.tell(what, rows, total)

    tasks = [Task(kind, number, piece, before.get(number, Extent())) for number, piece in pieces.items()]
    first = int(len(tasks) * preparation.begin)
    share = Share(preparation.work, preparation.claims, [*tasks[first:], *tasks[:first]], told)
    rows = share.rows_done
    run_tasks(preparation.recipe, preparation.work, preparation.identity, share, told)


def _survey(preparation: Preparation, pieces: Numbered, first: int) -> tuple[dict[int, Extent], int | None]:
    """What lies before each piece (rows of all files, lines of its own), and the rows of all pieces.

    Of one piece, nothing needs to be known beforehand.
    """
    if len(pieces) == 1 and preparation.recipe.data.split.by == "hash":
        return dict.fromkeys(pieces, Extent(first)), None
    _run(preparation, "extent", "survey", pieces, {}, None)
    before, rows, lines = {}, first, 0
    for number, piece in pieces.items():
        extent = preparation.work.extent(number)
        lines = 0 if piece.begin == 0 else lines
        before[number] = Extent(rows, lines)
        rows, lines = rows + extent.rows, lines + extent.lines
    return before, rows - first


def _with_cuts(preparation: Preparation, split: Split, pieces: Numbered, before: dict[int, Extent]) -> Numbered:
    """The pieces, each with where the splits of its rows begin. Raises InputError where a pattern names no file."""
    rows = {number: preparation.work.extent(number).rows for number in pieces}
    if split.by == "fraction":
        cuts = fraction_cuts(sum(rows.values()), split)
        return {number: replace(piece, cuts=cuts) for number, piece in pieces.items()}
    first: dict[Path, int] = {}
    count: dict[Path, int] = {}
    for number, piece in pieces.items():
        first.setdefault(piece.path, before[number].rows)
        count[piece.path] = count.get(piece.path, 0) + rows[number]
    by_file = {path: file_cuts(str(path), first[path], count[path], split) for path in first}
    return {number: replace(piece, cuts=by_file[piece.path]) for number, piece in pieces.items()}


def _count(
    preparation: Preparation, source: FileSource, pieces: Numbered, before: dict[int, Extent], total: int | None
) -> None:
    """Make the vocabularies: of all values, or those of the data that the model was trained on."""
    work, trained_on = preparation.work, preparation.identity.trained_on
    if not trained_on:
        _run(preparation, "counts", "count", pieces, before, total)

    if preparation.claims.take_or_wait("vocabularies", work.vocabularies.exists, preparation.wait):
        with aside(work.vocabularies) as folder:
            if trained_on:
                take_vocabularies(Path(trained_on), folder)
            else:
                folder.mkdir()
                source.join_counts([work.result("counts", number) for number in pieces], folder)
            sync(folder)
