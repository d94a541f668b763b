"""Which files a recipe names, in the order in which their rows are read."""

import glob
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

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

    Raises NoSuchFiles for each pattern that matches no file.
    """
    found: dict[Path, None] = {}
    problems = []
    for pattern in patterns:
        matches = [Path(name) for name in glob.glob(pattern, recursive=True)]
        files = sorted((path for path in matches if path.is_file()), key=_natural)
        if not files:
            problems.append(Problem(f"no file matches {pattern}", key="data.files", hint=_nearest(pattern)))
        found.update(dict.fromkeys(files))
    if problems:
        raise NoSuchFiles(problems)
    return list(found)


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


def _nearest(pattern: str) -> str:
    """The deepest folder of a pattern that exists."""
    fixed = Path(pattern)
    while glob.has_magic(str(fixed)) or not fixed.exists():
        fixed = fixed.parent
    return f"{fixed} exists; below it nothing matches. Paths in a recipe are relative to its folder."
