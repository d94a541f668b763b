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

    Lines end in a line feed, a carriage return, or both.
    """

    def __init__(self, path: Path) -> None:
        self._stream = pa.input_stream(str(path), compression="detect")
        self._last = _FEED
        self._ended = 0
        self._waiting: list[NDArray[np.int64]] = []
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
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
