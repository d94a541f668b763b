"""The manifest of a prepared dataset: what is in it, what a planner wants to know, and the size and sum of each file.

It is written last. Reading it checks every file's size; `verify` reads the files and checks their sums too.
"""

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dlrmx.errors import InputError, Problem

MANIFEST = "manifest.json"
VERSION = 4
HISTOGRAM = 64
# So many bad rows or ids are told one by one; all are counted.
OFFENDERS = 5


@dataclass(frozen=True)
class SplitFacts:
    """Rows of a split, those with a label (all that are trained on), the mean of their labels (None without any), and
    the best reachable normalized entropy where known."""

    rows: int
    labelled: int
    label_mean: float | None
    optimum_ne: float | None


@dataclass(frozen=True)
class FeatureFacts:
    """A feature over all splits: its storage, ids per row, and where in the table its look-ups fall.

    `expand`: so many ids are made of each one that is stored; `distinct` and `histogram` are of the stored ones.

    `distinct`: different rows met (an estimate for tables of more than 2**24 rows). `missing`: rows without a value.
    `unseen`: values that a vocabulary has no row for. `overflow`: vocabulary values left out because the table is full.
    `bad`: ids that did not fit the table and were clamped or hashed; `first_bad`: the first five, by file and row.
    `histogram`: look-ups in each of 64 equal ranges of the table's rows (range k: ids with id * 64 // rows == k).
    `top`: the busiest rows as [row, look-ups], most look-ups first. `sampled`: 0 where all look-ups were counted, else
    so many of them, evenly spaced, of which `top` and partly `hot` are estimates.
    `hot`: skew, as [share of the table's rows, share of all look-ups that the busiest so many rows take], ascending.
    """

    table: str
    rows: int
    one_hot: bool
    weighted: bool
    expand: int
    mean_pooling: float
    max_pooling: int
    distinct: int
    missing: int
    unseen: int
    overflow: int
    bad: int
    first_bad: list[str]
    histogram: list[int]
    top: list[list[int]]
    sampled: int
    hot: list[list[float]]

    def share_of_hottest(self, fraction: float) -> float:
        """The share of the look-ups that the busiest `fraction` of the table's rows take: 0.01 for its hottest 1%.

        Straight lines between the points of `hot`, so that between them it is rather too low.
        """
        points = [[0.0, 0.0], *self.hot, [1.0, 1.0]]
        for (left, low), (right, high) in pairwise(points):
            if fraction <= right:
                return low + (high - low) * (fraction - left) / (right - left)
        return 1.0


@dataclass(frozen=True)
class RowFacts:
    """Rows that were read, and the bad ones among them: left out ("skip") or kept with what is bad as missing ("zero").

    `first`: the first five bad ones, by file and row, and why. The splits hold read - bad rows, or with zero read rows.
    """

    read: int
    bad: int
    policy: str
    first: list[str]


@dataclass(frozen=True)
class FileFacts:
    """Size in bytes and CRC-32 of a file."""

    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """A prepared dataset. The names are those of the algorithms that made it and that order it.

    Files that begin with "vocabulary-" hold the values with rows of their own, so that other rows get the same ids.
    `transform`: fingerprint of what decides the content but the files; `sources`: these (path, size, time in ns).
    `by_file`: how many rows of each file are in train, validation and test, in the order in which they lie there.
    """

    fingerprint: str
    transform: str
    sources: list[list[str | int]]
    by_file: dict[str, list[int]]
    rows: RowFacts
    dense: list[str]
    splits: dict[str, SplitFacts]
    features: dict[str, FeatureFacts]
    files: dict[str, FileFacts]
    order: str
    permutation: str
    id_hash: str
    split_hash: str
    version: int = VERSION

    def to_json(self) -> str:
        """Readable, with a CRC-32 of its own content, so that an edit shows."""
        raw = asdict(self)
        return json.dumps({**raw, "crc32": _sum(raw)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read `to_json`'s form. Raises ValueError (also KeyError, TypeError) where it is none."""
        raw = json.loads(text)
        if raw["version"] != VERSION:
            raise ValueError(f"version {raw['version']}; this dlrmx reads {VERSION}")
        if raw.pop("crc32") != _sum(raw):
            raise ValueError("it was edited, or is damaged")
        splits = {name: SplitFacts(**facts) for name, facts in raw["splits"].items()}
        features = {name: FeatureFacts(**facts) for name, facts in raw["features"].items()}
        files = {name: FileFacts(**facts) for name, facts in raw["files"].items()}
        rows = RowFacts(**raw["rows"])
        return cls(**{**raw, "rows": rows, "splits": splits, "features": features, "files": files})


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Into the folder of the dataset, whose files are all there."""
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the dataset in `folder`, every file present with its size.

    Raises InputError where there is none, it is not ours, or files are missing or of another size: all by name.
    """
    path = folder / MANIFEST
    try:
        manifest = Manifest.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: no prepared data: it has no {MANIFEST}", hint=_again(folder)) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a manifest of prepared data: {error}", hint=_again(folder)) from None
    problems = list(_wrong_sizes(folder, manifest))
    if problems:
        raise InputError([*problems[:-1], Problem(problems[-1].what, where=problems[-1].where, hint=_again(folder))])
    return manifest


def verify(folder: Path) -> Manifest:
    """The manifest, after the content of each file was held against its sum. Raises InputError as `read_manifest`."""
    manifest = read_manifest(folder)
    verify_files(folder, manifest, list(manifest.files))
    return manifest


def verify_files(folder: Path, manifest: Manifest, names: Sequence[str]) -> None:
    """Hold the content of these files of a dataset against their sums. Raises InputError with all that differ."""
    wrong = [name for name in names if file_sum(folder / name) != manifest.files[name].crc32]
    if wrong:
        problems = [Problem("its content is not what was written (CRC-32)", where=str(folder / name)) for name in wrong]
        raise InputError([*problems[:-1], Problem(problems[-1].what, where=problems[-1].where, hint=_again(folder))])


def training_rows(manifest: Manifest) -> str:
    """8 hex digits that stand for the training rows and their order, whatever became of their sources' times."""
    sums = sorted(
        (name, facts.bytes, facts.crc32) for name, facts in manifest.files.items() if name.startswith("train.")
    )
    return f"{zlib.crc32(json.dumps([manifest.order, sums]).encode()):08x}"


def file_sum(path: Path) -> int:
    """CRC-32 of a file, read in pieces."""
    total = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            total = zlib.crc32(piece, total)
    return total


def _wrong_sizes(folder: Path, manifest: Manifest) -> Iterator[Problem]:
    for name, facts in manifest.files.items():
        path = folder / name
        if not path.is_file():
            yield Problem("missing from the prepared data", where=str(path))
        elif path.stat().st_size != facts.bytes:
            yield Problem(f"{path.stat().st_size} bytes, written were {facts.bytes}", where=str(path))


def _sum(raw: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(raw, sort_keys=True).encode())


def _again(folder: Path) -> str:
    return f"Remove {folder} and prepare again."
