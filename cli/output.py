"""Where things are printed: results on stdout (text or JSON), progress and messages on stderr."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from dlrmx.errors import InputError

JSON_VERSION = 1
# What a terminal would obey (C0, DEL, C1), but for tabs and line ends.
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def print_result(text: str) -> None:
    """A result, on stdout."""
    typer.echo(printable(text))


def print_json(**fields: Any) -> None:
    """A result for programs: one JSON object on stdout that opens with its version."""
    typer.echo(json.dumps({"version": JSON_VERSION, **fields}, indent=2, allow_nan=False))


def write_new(path: Path, text: str) -> None:
    """A result as a file of its own. Raises InputError where there is one of that name: it may have been edited."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists already", hint="Give another file name.") from None


def say(text: str) -> None:
    """A message for people, on stderr."""
    typer.echo(printable(text), err=True)


def say_error(text: str) -> None:
    """An error, on stderr: its first line in red where that is a terminal."""
    first, newline, rest = printable(text).partition("\n")
    typer.echo(typer.style("error: ", fg="red", bold=True) + first + newline + rest, err=True)


def printable(text: str) -> str:
    """The text with its control characters shown, not sent: names and values of recipes and logs are anybody's."""
    return text.translate(CONTROLS)


def stderr_is_terminal() -> bool:
    """False also where stderr is closed (`2>&-`): then there is none."""
    return bool(sys.stderr) and sys.stderr.isatty()


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Aligned columns under a header; those named in `right` are set to the right. Plain text, so that it pipes."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    to_right = [name in right for name in header]
    return "\n".join(_aligned(line, widths, to_right) for line in lines)


def _aligned(line: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    cells = zip(line, widths, to_right, strict=True)
    return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()


def pairs(facts: Mapping[str, str]) -> str:
    """One `name  value` line per fact, values aligned."""
    width = max(len(name) for name in facts)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in facts.items())
