"""Which files a recipe names, in the order in which their rows are read."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from dlrmx.data.source import Unreadable
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.schema import Criteo, Tabular

Format = Literal["csv", "tsv", "parquet"]

SUFFIXES: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
COMPRESSED = {".gz", ".bz2", ".zst", ".lz4"}


class NoSuchFiles(InputError):
    """A recipe's files are not on this machine."""


def find_files(data: Tabular | Criteo) -> list[Path]:
    """The files of a recipe, as `match_files`."""
    return match_files(data.files)


def match_files(patterns: Iterable[str]) -> list[Path]:
    """The files, pattern by pattern; within a pattern day_2 comes before day_10. A file named twice is read once.

    Raises NoSuchFiles for each pattern that matches no file, and each file whose name is not UTF-8.
    """
    found: dict[Path, None] = {}
    problems = []
    for pattern in patterns:
        matches = [Path(name) for name in glob.glob(pattern, recursive=True)]
        files = sorted((path for path in matches if path.is_file()), key=_natural)
        if not files:
            problems.append(Problem(f"no file matches {pattern}", key="data.files", hint=_nearest(pattern)))
        problems += [_no_text(path) for path in files if not _is_text(path)]
        found.update(dict.fromkeys(files))
    if problems:
        raise NoSuchFiles(problems)
    return list(found)


def refuse_changed(sources: Sequence[Sequence[str | int]]) -> None:
    """Raises InputError where a file (path, size, time) is not what it was then: rows read since may be of both."""
    for path, size, time_ns in sources:
        try:
            stat = os.stat(path)
        except OSError as error:
            raise Unreadable(f"{path}: cannot be read: {error.strerror}") from None
        if (stat.st_size, stat.st_mtime_ns) != (size, time_ns):
            what = f"{path}: changed while it was read: {stat.st_size:,} bytes now, {size:,} before"
            raise InputError(what, hint="Prepare again once nothing writes to it.")


def as_pattern(text: str) -> str:
    """A path or pattern as a pattern: a file that is there stands for itself, whatever characters its name has."""
    return glob.escape(text) if Path(text).is_file() else text


def format_of(path: Path, data: Tabular) -> Format:
    """The recipe's word, or what the file's name says. Raises InputError where neither tells."""
    found = format_by_name(path) if data.format == "auto" else data.format
    if found is None:
        raise InputError(f"{path}: its name does not tell its format", hint="Set data.format to csv, tsv or parquet.")
    return found


def format_by_name(path: Path) -> Format | None:
    """What a file's name says, under a suffix of compression too; None where it says nothing."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def _natural(path: Path) -> list[tuple[int, str]]:
    """Digits count as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", str(path))]


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_text(path: Path) -> Problem:
    name = os.fsencode(path).decode(errors="backslashreplace")
    return Problem(f"the name of {name} is not UTF-8", key="data.files", hint="Rename it.")


def _nearest(pattern: str) -> str:
    """Why a path that is there is none of a file; else the deepest folder of a pattern that exists."""
    fixed = Path(pattern)
    if fixed.is_dir():
        return f"{pattern} is a folder. A pattern names the files in it: '{fixed / '*'}'."
    if fixed.is_symlink() and not fixed.exists():
        return f"{pattern} is a link to {os.readlink(fixed)}, which is not there."
    if fixed.exists():
        return f"{pattern} is a pipe or a device. Files are read several times: write its rows to a file first."
    while glob.has_magic(str(fixed)) or not fixed.exists():
        fixed = fixed.parent
    return f"{fixed} exists; below it nothing matches. Paths in a recipe are relative to its folder."
