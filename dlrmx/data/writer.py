"""Writing a prepared dataset, part by part: the columns of each split, and the facts for its manifest."""

import math
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.columns import BagColumn, Columns, FeatureLayout, Layout, SplitFiles
from dlrmx.data.faults import Policy, Tally
from dlrmx.data.hashing import TEXT_HASH
from dlrmx.data.manifest import HISTOGRAM, MANIFEST, FeatureFacts, FileFacts, Manifest, RowFacts, SplitFacts
from dlrmx.data.order import ORDER
from dlrmx.data.permute import PERMUTATION
from dlrmx.data.splits import SPLIT_HASH, SPLITS

# Up to so many rows, the different ids of a table are counted exactly: one byte each.
EXACT_ROWS = 2**24


@dataclass(frozen=True)
class Part:
    """Some rows: their columns, each row's split (n,), and the entropy of its true label (n,) in nats where known."""

    columns: Columns
    splits: NDArray[np.uint8]
    entropy: NDArray[np.float64] | None = None


@dataclass
class Losses:
    """What a feature lost on the way (see FeatureFacts)."""

    missing: int = 0
    unseen: int = 0
    overflow: int = 0
    bad: Tally = field(default_factory=Tally)


class Source(Protocol):
    """Where rows come from. `rows` is None where it is not known beforehand.

    After `parts`, `losses` and `bad_rows` are complete, and `policy` says what became of the bad rows.
    """

    layout: Layout
    rows: int | None
    losses: dict[str, Losses]
    bad_rows: Tally
    policy: Policy

    def parts(self) -> Iterator[Part]: ...


class _File:
    """A file that is written once, from begin to end, and its facts."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.facts = FileFacts(0, 0)
        self._file = path.open("wb")

    def write(self, array: NDArray[np.generic]) -> None:
        raw = np.ascontiguousarray(array).tobytes()
        self._file.write(raw)
        self.facts = FileFacts(self.facts.bytes + len(raw), zlib.crc32(raw, self.facts.crc32))

    def close(self) -> None:
        """On the disk, not only in its cache: the rename that publishes it may survive a power cut."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())


class _BagWriter:
    """The files of one feature's bags in one split."""

    def __init__(self, folder: Path, files: SplitFiles, number: int, *, weighted: bool) -> None:
        names = files.bag(number)
        self._offsets, self._ids = _File(folder / names.offsets), _File(folder / names.ids)
        self._weights = _File(folder / names.weights) if weighted else None
        self._end = 0
        self._offsets.write(np.zeros(1, dtype="<i8"))

    @property
    def files(self) -> list[_File]:
        return [self._offsets, self._ids, *([self._weights] if self._weights else [])]

    def append(self, bags: BagColumn, id_type: np.dtype[np.int32] | np.dtype[np.int64]) -> None:
        self._offsets.write(bags.offsets[1:] + self._end)
        self._end += int(bags.offsets[-1])
        self._ids.write(bags.ids.astype(id_type))
        if self._weights:
            assert bags.weights is not None
            self._weights.write(bags.weights.astype("<f4"))


class _SplitWriter:
    """The files and facts of one split."""

    def __init__(self, folder: Path, name: str, layout: Layout) -> None:
        files = SplitFiles(name)
        self._id_type = layout.id_type
        self._labels, self._dense = _File(folder / files.labels), _File(folder / files.dense)
        self._one_hot = _File(folder / files.one_hot)
        self._bags = [
            _BagWriter(folder, files, number, weighted=feature.weighted) for number, feature in enumerate(layout.bags)
        ]
        self.rows = 0
        self._positive = 0.0
        self._entropy: float | None = None

    @property
    def files(self) -> list[_File]:
        return [self._labels, self._dense, self._one_hot, *(file for bag in self._bags for file in bag.files)]

    def append(self, columns: Columns, entropy: NDArray[np.float64] | None) -> None:
        self._labels.write(columns.labels.astype("<f4"))
        self._dense.write(columns.dense.astype("<f4"))
        self._one_hot.write(columns.one_hot.astype(self._id_type))
        for writer, bags in zip(self._bags, columns.bags, strict=True):
            writer.append(bags, self._id_type)
        self.rows += len(columns.labels)
        self._positive += float(columns.labels.sum(dtype=np.float64))
        if entropy is not None:
            self._entropy = (self._entropy or 0.0) + float(entropy.sum())

    @property
    def facts(self) -> SplitFacts:
        if self.rows == 0:
            return SplitFacts(0, None, None)
        mean = self._positive / self.rows
        if self._entropy is None or mean in (0, 1):
            return SplitFacts(self.rows, mean, None)
        base = -(mean * np.log(mean) + (1 - mean) * np.log1p(-mean))
        return SplitFacts(self.rows, mean, float(self._entropy / self.rows / base))


@dataclass
class _Count:
    """The facts of one feature, counted as parts go by."""

    feature: FeatureLayout
    bags: int = 0
    ids: int = 0
    longest: int = 0
    histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(HISTOGRAM, dtype=np.int64))

    def __post_init__(self) -> None:
        self._met = np.zeros(min(self.feature.rows, EXACT_ROWS), dtype=np.bool_)

    def add(self, ids: NDArray[np.integer], num_bags: int, longest: int) -> None:
        rows = self.feature.rows
        wide = ids.astype(np.int64)
        assert len(wide) == 0 or (wide.min() >= 0 and wide.max() < rows), (
            f"{self.feature.name}: an id outside its table"
        )
        self.bags += num_bags
        self.ids += len(wide)
        self.longest = max(self.longest, longest)
        self.histogram += np.bincount(wide * HISTOGRAM // rows, minlength=HISTOGRAM)
        self._met[wide if rows <= EXACT_ROWS else wide % EXACT_ROWS] = True

    def facts(self, losses: Losses) -> FeatureFacts:
        feature = self.feature
        return FeatureFacts(
            table=feature.table,
            rows=feature.rows,
            one_hot=feature.one_hot,
            weighted=feature.weighted,
            expand=feature.expand,
            mean_pooling=feature.expand * self.ids / self.bags if self.bags else 0.0,
            max_pooling=feature.expand * self.longest,
            distinct=self._distinct(),
            missing=losses.missing,
            unseen=losses.unseen,
            overflow=losses.overflow,
            bad=losses.bad.count,
            first_bad=losses.bad.first,
            histogram=self.histogram.tolist(),
        )

    def _distinct(self) -> int:
        met = int(self._met.sum())
        if self.feature.rows <= EXACT_ROWS:
            return met
        # Linear counting (Whang et al. 1990): the ids are spread evenly, so the free share of m slots is exp(-n / m).
        return round(EXACT_ROWS * math.log(EXACT_ROWS / max(EXACT_ROWS - met, 1)))


class DatasetWriter:
    """Writes a dataset into an existing, empty folder. A context: leaving it closes the files."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._folder, self._layout = folder, layout
        self._open = ExitStack()
        self._splits = {name: _SplitWriter(folder, name, layout) for name in SPLITS}
        for split in self._splits.values():
            for file in split.files:
                self._open.callback(file.close)
        self._counts = {feature.name: _Count(feature) for feature in layout.features}

    def __enter__(self) -> "DatasetWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def rows(self) -> dict[str, int]:
        """Rows written so far, by split."""
        return {name: split.rows for name, split in self._splits.items()}

    def append(self, part: Part) -> None:
        """Each row of the part to its split, in order."""
        for number, split in enumerate(self._splits.values()):
            rows = np.flatnonzero(part.splits == number)
            split.append(part.columns.take(rows), None if part.entropy is None else part.entropy[rows])
        for column, feature in enumerate(self._layout.one_hot):
            ids = part.columns.one_hot[:, column]
            self._counts[feature.name].add(ids, len(ids), min(len(ids), 1))
        for bags, feature in zip(part.columns.bags, self._layout.bags, strict=True):
            lengths = bags.lengths
            self._counts[feature.name].add(bags.ids, len(lengths), int(lengths.max(initial=0)))

    def finish(self, fingerprint: str, source: Source) -> None:
        """Close the files and write the manifest, last."""
        self._open.close()
        bad, kept = source.bad_rows, sum(self.rows.values())
        read = kept + bad.count if source.policy == "skip" else kept
        manifest = Manifest(
            fingerprint=fingerprint,
            rows=RowFacts(read, bad.count, source.policy, bad.first),
            dense=list(self._layout.dense),
            splits={name: split.facts for name, split in self._splits.items()},
            features={name: count.facts(source.losses[name]) for name, count in self._counts.items()},
            files={file.name: file.facts for split in self._splits.values() for file in split.files},
            order=ORDER,
            permutation=PERMUTATION,
            id_hash=TEXT_HASH,
            split_hash=SPLIT_HASH,
        )
        with (self._folder / MANIFEST).open("w", encoding="utf-8") as file:
            file.write(manifest.to_json())
            file.flush()
            os.fsync(file.fileno())
