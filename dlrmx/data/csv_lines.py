"""The lines of CSV files: which of them hold rows, and where a quoted field runs over the end of its line.

A line that is empty holds no row; any other holds one, because an unclosed quote, which would swallow the rows that
follow, is refused.
"""

import csv
import io
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dlrmx.errors import InputError, Problem

_FEED, _RETURN = ord("\n"), ord("\r")


class CountedLines(io.RawIOBase):
    """A file, decompressed, that counts the lines read from it, but for empty ones: those that hold a row each.

    Lines end in a line feed, a carriage return, or both. Of a line with too few or too many fields, what is not UTF-8
    is given as U+FFFD: arrow tells of such lines as text, and fails where it is none. The others are as they are, but
    for those at and behind a quote that is not closed: `swallowed`, the file is to be refused.
    """

    def __init__(self, path: Path, delimiter: str) -> None:
        self._delimiter = delimiter
        self._fields = 0
        self._held = b""
        self._quoted = self.swallowed = False
        self._stream = pa.input_stream(str(path), compression="detect")
        self._last = _FEED
        self._ended = 0
        self._waiting: list[NDArray[np.int64]] = []
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while True:
            piece = self._read(size)
            text = self._as_text(piece)
            if text or not piece:
                return text

    def _as_text(self, piece: bytes) -> bytes:
        """The lines so far, of which the last may go on in the next piece where something in them is not UTF-8."""
        text, self._held = self._held + piece, b""
        self._fields = self._fields or self._count_fields(text.lstrip(b"\r\n").splitlines()[:1])
        if text.isascii() or _is_utf8(text):
            return text
        lines = text.splitlines(keepends=True)
        if piece and not lines[-1].endswith((b"\n", b"\r")):
            self._held = lines.pop()
        return b"".join(map(self._shown, lines))

    def _shown(self, line: bytes) -> bytes:
        bare = line.rstrip(b"\r\n")
        self._quoted = self._quoted or _ends_quoted(bare.decode("latin-1"), self._delimiter)
        if _is_utf8(line) or not (self._quoted or self._count_fields([bare]) != self._fields):
            return line
        self.swallowed |= self._quoted
        return line.decode(errors="replace").encode()

    def _count_fields(self, line: list[bytes]) -> int:
        """Of one line, or none; -1 where a field is longer than Python's csv takes."""
        try:
            return len(next(csv.reader([text.decode("latin-1") for text in line], delimiter=self._delimiter), []))
        except csv.Error:
            return -1

    def _read(self, size: int) -> bytes:
        piece: bytes = self._stream.read(size if size >= 0 else None)
        codes = np.frombuffer(piece, dtype=np.uint8)
        if len(codes):
            feeds, returns = codes == _FEED, codes == _RETURN
            ends = feeds | returns
            begins = np.flatnonzero(~ends & np.concatenate([[self._last in (_FEED, _RETURN)], ends[:-1]]))
            # Where a line is over; a line feed after a carriage return ends nothing more.
            over = np.flatnonzero(returns | feeds & ~np.concatenate([[self._last == _RETURN], returns[:-1]]))
            self._waiting.append(1 + self._ended + np.searchsorted(over, begins))
            self.count += len(begins)
            self._ended += len(over)
            self._last = int(codes[-1])
        return piece

    def take(self, count: int) -> NDArray[np.int64]:
        """The line numbers, from 1, of the next `count` lines that are not empty; they were read."""
        numbers = np.concatenate([np.zeros(0, dtype=np.int64), *self._waiting])
        self._waiting = [numbers[count:]]
        return numbers[:count]

    def close(self) -> None:
        self._stream.close()
        super().close()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def refuse_open_quote(path: Path, delimiter: str, last: int) -> None:
    """Raises InputError where one of the lines 1 to `last` ends within quotes: no row behind it has a sure number."""
    number = _open_quote(path, delimiter, last)
    if number is not None:
        raise _error(f"{path}:{number}")


def open_quote(path: Path, delimiter: str) -> InputError:
    """The error for a file whose lines are more than its rows; it names the first line that ends within quotes."""
    number = _open_quote(path, delimiter, None)
    return _error(str(path) if number is None else f"{path}:{number}")


def _open_quote(path: Path, delimiter: str, last: int | None) -> int | None:
    """The first line, up to line `last`, that ends within quotes."""
    with pa.input_stream(str(path), compression="detect") as raw, io.TextIOWrapper(raw, errors="replace") as text:
        lines = enumerate(islice(text, last), start=1)
        return next((number for number, line in lines if _ends_quoted(line.rstrip("\r\n"), delimiter)), None)


def _error(where: str) -> InputError:
    hint = "Is a closing quote missing? Text with line breaks in it needs Parquet files."
    return InputError([Problem("a quoted field runs over the end of its line", where=where, hint=hint)])


def _ends_quoted(line: str, delimiter: str) -> bool:
    if '"' not in line:
        return False
    try:
        list(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        return "end of data" in str(error)
    return False
