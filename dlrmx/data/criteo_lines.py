"""The lines of files in Criteo's layout, cut into fields: label, 13 integers, 26 categories; bytes alone, no values.

Tabs or commas, as the first line has; a first line that begins with `label`, or with `I1` where there are no labels, is
a header. Blank lines are no rows, a carriage return before a line feed and a byte order mark at the begin of a file are
no part of a field. A file is read in blocks, plain or through gzip; a plain one also from byte to byte, so that several
readers can share it.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.source import Extent, Piece, Unreadable
from dlrmx.errors import InputError

FIELDS = 40
# One read, some 9,000 lines: what is made of it stays in the processor's cache.
READ_BYTES = 2 << 20
MAX_LINE_BYTES = 16 << 20
# Around the bytes of a block, so that 8 bytes can be read from the begin and before the end of each field.
MARGIN = 8

_FEED, _RETURN = 10, 13
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Lines:
    """N rows of one file: field f of row i is data[starts[i, f] : ends[i, f]].

    `numbers` (N,): their line numbers in the file; for a piece from its middle on, counted from the piece's first line.
    `fields` (N,): how many each has, which should be `width`; those of a row that has not so many are all empty here.
    A file without labels has 39; the label is an empty field here.
    """

    data: Bytes
    starts: Int64s
    ends: Int64s
    numbers: Int64s
    fields: Int64s
    width: int

    def text(self, row: int, field: int) -> bytes:
        return self.data[self.starts[row, field] : self.ends[row, field]].tobytes()


def read_lines(piece: Piece) -> Iterator[Lines]:
    """The rows of a piece, block by block. Raises InputError where the file cannot be read."""
    style = read_style(piece.path)
    number = style.line if piece.begin <= style.start else 1
    for block in _blocks(piece, style.start):
        yield _cut(block, style, number)
        number += int(np.count_nonzero(block == _FEED))


def count_rows(piece: Piece) -> Extent:
    """How many rows `read_lines` gives, and on how many lines, those before the file's first row included."""
    style = read_style(piece.path)
    rows, lines = 0, style.line - 1 if piece.begin <= style.start else 0
    for block in _blocks(piece, style.start):
        feeds = np.flatnonzero(block == _FEED)
        lengths = np.diff(feeds, prepend=-1) - 1
        short = lengths <= 1
        blank = (lengths[short] == 0) | (block[feeds[short] - 1] == _RETURN)
        rows += len(feeds) - int(blank.sum())
        lines += len(feeds)
    return Extent(rows, lines)


@dataclass(frozen=True)
class Style:
    """What separates a file's fields, 40 or without labels 39; the byte and the line number at which its rows begin."""

    delimiter: int
    width: int
    start: int
    line: int


def read_style(path: Path) -> Style:
    """Look at a file's first line. Raises InputError for an empty file."""
    number, start = 1, 0
    for block in _blocks(Piece(path), 0):
        raw = block.tobytes()
        if start == 0 and raw.startswith(_BOM):
            raw, start = raw[3:], 3
        for line in raw.split(b"\n")[:-1]:
            if line not in (b"", b"\r"):
                return _style(line, start, number)
            start, number = start + len(line) + 1, number + 1
    raise InputError(f"{path}: the file is empty", hint="A row is a label, 13 integers and 26 categories.")


def _style(line: bytes, start: int, number: int) -> Style:
    delimiter = b"\t" if b"\t" in line else b","
    fields = line.split(delimiter)
    width = FIELDS - 1 if len(fields) == FIELDS - 1 else FIELDS
    if fields[0].strip().lower() == (b"label" if width == FIELDS else b"i1"):
        return Style(delimiter[0], width, start + len(line) + 1, number + 1)
    return Style(delimiter[0], width, start, number)


def _cut(block: Bytes, style: Style, number: int) -> Lines:
    """Find the fields of a block that ends in a line feed; `number` is that of its first line."""
    data = np.zeros(len(block) + 2 * MARGIN, dtype=np.uint8)
    data[MARGIN:-MARGIN] = block
    stops = np.flatnonzero((data == _FEED) | (data == style.delimiter))
    lasts = np.flatnonzero(data[stops] == _FEED)
    fields = np.diff(lasts, prepend=-1)
    begins = np.concatenate([np.array([MARGIN]), stops[lasts[:-1]] + 1])
    lengths = stops[lasts] - begins
    single = (fields == 1) & (lengths <= 1)
    rows = np.arange(len(lasts))
    if single.any():
        rows = rows[~(single & ((lengths == 0) | (data[begins] == _RETURN)))]
    whole, width = fields[rows] == style.width, style.width
    if whole.all() and len(rows) == len(lasts):
        ends = stops.reshape(-1, width)
        starts = _starts(ends, begins)
    else:
        ends = np.full((len(rows), width), MARGIN)
        ends[whole] = stops[lasts[rows[whole]][:, None] + np.arange(1 - width, 1)]
        starts = _starts(ends, begins[rows])
        starts[~whole] = MARGIN
    # A copy: `stops` may be shared, and the last field of a line may end in a carriage return.
    ends = ends.copy()
    ends[:, -1] -= (data[ends[:, -1] - 1] == _RETURN) & (ends[:, -1] > starts[:, -1])
    if width < FIELDS:
        starts, ends = _with_empty_label(starts), _with_empty_label(ends)
    return Lines(data, starts, ends, number + rows, fields[rows], width)


def _with_empty_label(places: Int64s) -> Int64s:
    return np.concatenate([np.full((len(places), 1), MARGIN), places], axis=1)


def _starts(ends: Int64s, begins: Int64s) -> Int64s:
    starts = np.empty_like(ends)
    starts[:, 0] = begins
    starts[:, 1:] = ends[:, :-1] + 1
    return starts


def _blocks(piece: Piece, start: int) -> Iterator[Bytes]:
    """The piece's lines from byte `start` on: whole ones; a line feed is added where the last lacks one."""
    try:
        with _open(piece.path) as file:
            yield from _read(file, piece, start)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{piece.path}: damaged or truncated gzip: {error}", hint="Fetch the file again.") from None
    except OSError as error:
        raise Unreadable(f"{piece.path}: cannot be read: {error.strerror or error}") from None


def is_packed(path: Path) -> bool:
    """Whether the file is gzip."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def _open(path: Path) -> gzip.GzipFile | io.FileIO:
    return gzip.open(path, "rb") if is_packed(path) else path.open("rb", buffering=0)


def _read(file: gzip.GzipFile | io.FileIO, piece: Piece, start: int) -> Iterator[Bytes]:
    rest, position = _first_line(file, piece.begin, start)
    while piece.end is None or position < piece.end:
        raw = file.read(READ_BYTES)
        ended = not raw
        if ended and rest and not rest.endswith(b"\n"):
            raw = b"\n"
        rest, block, position = _take(rest + raw, position, piece)
        if block:
            yield np.frombuffer(block, dtype=np.uint8)
        if ended:
            return


def _first_line(file: gzip.GzipFile | io.FileIO, begin: int, start: int) -> tuple[bytes, int]:
    """Some bytes from the first line that begins at `begin` or later, and where it begins; a line begins at `start`."""
    if begin <= start:
        file.seek(start)
        return b"", start
    # From the byte before: a line feed there means that a line begins at `begin`.
    file.seek(begin - 1)
    position = begin - 1
    while raw := file.read(READ_BYTES):
        cut = raw.find(b"\n") + 1
        if cut:
            return raw[cut:], position + cut
        position += len(raw)
    return b"", position


def _take(raw: bytes, position: int, piece: Piece) -> tuple[bytes, bytes, int]:
    """Cut off the whole lines that begin before the piece's end: the rest, the lines, and where the rest begins."""
    stop = raw.rfind(b"\n") + 1
    if piece.end is not None and position + stop > piece.end:
        # The last line that is ours is the one that the byte before `end` belongs to.
        stop = raw.find(b"\n", piece.end - 1 - position) + 1
    if stop == 0 and len(raw) > MAX_LINE_BYTES:
        raise InputError(f"{piece.path}: a line is longer than {MAX_LINE_BYTES >> 20} MiB: is it a text file?")
    return raw[stop:], raw[:stop], position + stop
