"""Where things are printed: results on stdout (text or JSON), progress and messages on stderr."""

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer

from dlrmx.errors import InputError

JSON_VERSION = 1
WIDTH = 80  # columns of what is laid out, as far as names and numbers allow
GAP = 2  # columns between two of a table
INDENT = 4  # of what does not fit into its line
# What a terminal obeys, and what has it show another text than there is: controls (C0 but tabs and line ends, DEL, C1),
# marks that turn the direction of writing or take no room, other line ends, halves of characters (bytes of a file's
# name that are no UTF-8: stdout would refuse them).
UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)


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
    """The text with what cannot be seen shown (`\\x1b`), not sent: names in recipes and lines of logs are anybody's."""
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _in_a_line(text: str) -> str:
    """As `printable`, and tabs and line ends too: they would tear a line of aligned texts."""
    return printable(text).replace("\t", "\\t").replace("\n", "\\n")


def stderr_is_terminal() -> bool:
    """False also where stderr is closed (`2>&-`): then there is none."""
    return bool(sys.stderr) and sys.stderr.isatty()


def screen_width() -> int | None:
    """The columns of the terminal that results go to; None where they go elsewhere (a pipe, a file)."""
    return shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), width: int | None = None
) -> str:
    """Aligned columns under a header; those named in `right` are set to the right. Plain text, so that it pipes.

    width: the last columns, as many as do not fit into it, stand below each line, by name. None: a line is as long as
    it is.
    """
    lines = [[_in_a_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    shown = len(header) if width is None else _fitting(widths, width)
    to_right = [name in right for name in header[:shown]]
    found = []
    for line in lines:
        found.append(_aligned(line[:shown], widths[:shown], to_right))
        if line is not lines[0] and width is not None:
            found += _below(dict(zip(lines[0][shown:], line[shown:], strict=True)), width)
    return "\n".join(found)


def _fitting(widths: Sequence[int], width: int) -> int:
    """How many of the first columns fit; the first stays."""
    ends = [sum(widths[: count + 1]) + GAP * count for count in range(len(widths))]
    return max(1, sum(end <= width for end in ends))


def _below(cells: Mapping[str, str], width: int) -> list[str]:
    """The named cells in lines of `width`, indented; a path that is longer is not torn."""
    indent = " " * INDENT
    lines: list[str] = []
    for text in (f"{name} {cell}" for name, cell in cells.items() if cell):
        if lines and len(lines[-1]) + GAP + len(text) <= width:
            lines[-1] += " " * GAP + text
        else:
            lines += wrap(
                text,
                width,
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return lines


def _aligned(line: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    cells = zip(line, widths, to_right, strict=True)
    gap = " " * GAP
    return gap.join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()


def pairs(facts: Mapping[str, str]) -> str:
    """One `name  value` line per fact, values aligned."""
    shown = {_in_a_line(name): value for name, value in facts.items()}
    width = max(map(len, shown))
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown.items())
