"""What preparation asks of a kind of files: pieces that are read apart from each other, and rows for the writer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dlrmx.data.columns import Layout
from dlrmx.data.faults import Policy, Tally
from dlrmx.data.splits import Cuts
from dlrmx.data.writer import Losses, Part
from dlrmx.errors import InputError

# Called with the number of rows that were done since the last call.
Told = Callable[[int], None]


class Unreadable(InputError):
    """A file could not be read. It may be another time: what was made of the others stays."""


@dataclass(frozen=True)
class Piece:
    """The rows of a file whose lines begin in [begin, end); end None: to the last one.

    `cuts`: where rows are split by their place, that of the piece's rows (see splits.py); else nothing.
    """

    path: Path
    begin: int = 0
    end: int | None = None
    cuts: Cuts = ()


@dataclass(frozen=True)
class Extent:
    """So many rows, on so many lines of text: of a piece, or of all that lies before one (lines: in its file)."""

    rows: int = 0
    lines: int = 0


class FileSource(Protocol):
    """The files of a recipe. Where they are `scored` and not trained on, rows need no label, and none is left out.

    `losses` and `bad_rows` are those of the pieces that `parts` has read.

    `counted`: there are vocabularies.
    """

    layout: Layout
    losses: dict[str, Losses]
    bad_rows: Tally
    policy: Policy
    counted: bool

    def pieces(self) -> list[Piece]:
        """All pieces, in the order of their rows. Raises InputError where a file is not what the recipe says."""
        ...

    def anew(self) -> "FileSource":
        """The same files, nothing read yet: for the next piece."""
        ...

    def extent(self, piece: Piece) -> Extent:
        """Of one piece."""
        ...

    def count(self, piece: Piece, before: Extent, folder: Path, told: Told) -> None:
        """Count the values of the piece's training rows, for vocabularies, into files in `folder`."""
        ...

    def join_counts(self, folders: list[Path], folder: Path) -> None:
        """Make the vocabularies of the counts of all pieces, into files in `folder`."""
        ...

    def parts(self, piece: Piece, before: Extent, vocabularies: Path) -> Iterator[Part]:
        """The piece's rows, in order. Raises InputError at a bad one, if the recipe says so."""
        ...
