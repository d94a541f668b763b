"""JSON lines that only grow: one O_APPEND write per line, readers that live with torn ones."""

import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def append_line(path: Path, line: Line) -> bool:
    """Append `line` in one write, so that lines of several processes never mix.

    Numbers that JSON lacks (NaN, infinities) become null. A line that cannot be written (disk full) is dropped with a
    word on stderr and False: training matters more than its log.
    """
    data = json.dumps(_json_safe(line), allow_nan=False, separators=(",", ":")).encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # A writer that died in mid-line left no newline: without one, this line would be lost with it.
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            return os.write(descriptor, b"\n" + data if torn else data) >= len(data)
        finally:
            os.close(descriptor)
    except OSError as error:
        print(f"not written to {path}: {error}", file=sys.stderr, flush=True)
        return False


def read_lines(path: Path) -> Iterator[Line]:
    """All complete lines, oldest first; torn ones are skipped; nothing where there is no file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for text in data.splitlines():
        line = _parsed(text)
        if line is not None:
            yield line


def last_line(path: Path, *, window: int = 65_536) -> Line | None:
    """The newest complete line among the last `window` bytes, without reading the rest."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - window))
            tail = file.read()
    except FileNotFoundError:
        return None
    lines = (_parsed(text) for text in reversed(tail.splitlines()))
    return next((line for line in lines if line is not None), None)


@dataclass
class LineTail:
    """Reads a growing file: each call of `new` gives the complete lines since the last one."""

    path: Path
    _offset: int = 0

    def new(self) -> list[Line]:
        """Complete new lines, torn ones left out; none while there is no file."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [line for text in complete.splitlines() if (line := _parsed(text)) is not None]


def _parsed(text: bytes) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _json_safe(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _json_safe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_safe(entry) for entry in value]
    return value
