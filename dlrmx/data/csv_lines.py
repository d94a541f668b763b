"""Finds a quoted field that runs over the end of its line: an unclosed quote would swallow the rows that follow."""

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa

from dlrmx.errors import InputError, Problem


class CountedLines(io.RawIOBase):
    """A file, decompressed, that counts the lines read from it, but for empty ones: those that hold a row each."""

    def __init__(self, path: Path) -> None:
        self._stream = pa.input_stream(str(path), compression="detect")
        self._at_end = True
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._stream.read(size if size >= 0 else None)
        codes = np.frombuffer(piece, dtype=np.uint8)
        if len(codes):
            ends = (codes == ord("\n")) | (codes == ord("\r"))
            before = np.concatenate([[self._at_end], ends[:-1]])
            self.count += int(np.count_nonzero(before & ~ends))
            self._at_end = bool(ends[-1])
        return piece

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_quote(path: Path, delimiter: str) -> InputError:
    """The error for a file whose lines are more than its rows; it names the first line that ends within quotes."""
    where = str(path)
    with pa.input_stream(str(path), compression="detect") as raw, io.TextIOWrapper(raw, errors="replace") as text:
        numbers = (number for number, line in enumerate(text, start=1) if _ends_quoted(line.rstrip("\r\n"), delimiter))
        number = next(numbers, None)
    if number is not None:
        where = f"{path}:{number}"
    hint = "Is a closing quote missing? Text with line breaks in it needs Parquet files."
    return InputError([Problem("a quoted field runs over the end of its line", where=where, hint=hint)])


def _ends_quoted(line: str, delimiter: str) -> bool:
    try:
        list(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        return "end of data" in str(error)
    return False
