"""Writing a prepared dataset, part by part: the columns of each split, and the facts for its manifest."""

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.columns import BagColumn, Columns, FeatureLayout, Layout, SplitFiles, lookups_file
from dlrmx.data.faults import Policy, Tally
from dlrmx.data.hashing import TEXT_HASH
from dlrmx.data.lookups import Lookups
from dlrmx.data.manifest import FeatureFacts, Manifest, RowFacts, SplitFacts, write_manifest
from dlrmx.data.order import ORDER
from dlrmx.data.output import OutputFile
from dlrmx.data.permute import PERMUTATION
from dlrmx.data.splits import SPLIT_HASH, SPLITS


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


@dataclass(frozen=True)
class Identity:
    """Which dataset it is: its fingerprint, that of all but the files, and the files (path, size, time).

    trained_on: the prepared data of the model that is to score its rows; "" where they are to be trained on.
    """

    fingerprint: str
    transform: str
    sources: list[list[str | int]]
    trained_on: str = ""


class _BagWriter:
    """The files of one feature's bags in one split."""

    def __init__(self, folder: Path, files: SplitFiles, number: int, *, weighted: bool) -> None:
        names = files.bag(number)
        self._offsets, self._ids = OutputFile(folder / names.offsets), OutputFile(folder / names.ids)
        self._weights = OutputFile(folder / names.weights) if weighted else None
        self._end = 0
        self._offsets.write(np.zeros(1, dtype="<i8"))

    @property
    def files(self) -> list[OutputFile]:
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
        self._labels, self._dense = OutputFile(folder / files.labels), OutputFile(folder / files.dense)
        self._one_hot = OutputFile(folder / files.one_hot)
        self._bags = [
            _BagWriter(folder, files, number, weighted=feature.weighted) for number, feature in enumerate(layout.bags)
        ]
        self.rows = 0
        self._labelled, self._positive = 0, 0.0
        self._entropy: float | None = None

    @property
    def files(self) -> list[OutputFile]:
        return [self._labels, self._dense, self._one_hot, *(file for bag in self._bags for file in bag.files)]

    def append(self, columns: Columns, entropy: NDArray[np.float64] | None) -> None:
        self._labels.write(columns.labels.astype("<f4"))
        self._dense.write(columns.dense.astype("<f4"))
        self._one_hot.write(columns.one_hot.astype(self._id_type))
        for writer, bags in zip(self._bags, columns.bags, strict=True):
            writer.append(bags, self._id_type)
        self.rows += len(columns.labels)
        labelled = columns.labels[~np.isnan(columns.labels)]
        self._labelled += len(labelled)
        self._positive += float(labelled.sum(dtype=np.float64))
        if entropy is not None:
            self._entropy = (self._entropy or 0.0) + float(entropy.sum())

    @property
    def facts(self) -> SplitFacts:
        if self._labelled == 0:
            return SplitFacts(self.rows, 0, None, None)
        mean = self._positive / self._labelled
        if self._entropy is None or mean in (0, 1):
            return SplitFacts(self.rows, self._labelled, mean, None)
        base = -(mean * np.log(mean) + (1 - mean) * np.log1p(-mean))
        return SplitFacts(self.rows, self._labelled, mean, float(self._entropy / self.rows / base))


@dataclass
class _Count:
    """The facts of one feature, counted as parts go by."""

    feature: FeatureLayout
    bags: int = 0
    ids: int = 0
    longest: int = 0

    def __post_init__(self) -> None:
        self.lookups = Lookups(self.feature.rows)

    def add(self, ids: NDArray[np.integer], num_bags: int, longest: int) -> None:
        rows = self.feature.rows
        wide = ids.astype(np.int64)
        assert len(wide) == 0 or (wide.min() >= 0 and wide.max() < rows), (
            f"{self.feature.name}: an id outside its table"
        )
        self.bags += num_bags
        self.ids += len(wide)
        self.longest = max(self.longest, longest)
        self.lookups.add(wide)

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
            distinct=self.lookups.distinct,
            missing=losses.missing,
            unseen=losses.unseen,
            overflow=losses.overflow,
            bad=losses.bad.count,
            first_bad=losses.bad.first,
            histogram=self.lookups.histogram.tolist(),
            top=[],
            sampled=0,
            hot=[],
        )


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

    def finish(
        self, identity: Identity, losses: dict[str, Losses], rows: RowFacts, *, file: Path | None = None
    ) -> None:
        """Close the files and write the manifest, last. `file`: that all rows come from, if they come from one."""
        self._open.close()
        files = [file for split in self._splits.values() for file in split.files]
        for number, count in enumerate(self._counts.values()):
            files.append(OutputFile(self._folder / lookups_file(number)))
            with closing(files[-1]):
                files[-1].write_bytes(count.lookups.to_bytes())
        manifest = Manifest(
            fingerprint=identity.fingerprint,
            transform=identity.transform,
            sources=identity.sources,
            by_file={str(file): list(self.rows.values())} if file else {},
            rows=rows,
            dense=list(self._layout.dense),
            splits={name: split.facts for name, split in self._splits.items()},
            features={name: count.facts(losses[name]) for name, count in self._counts.items()},
            files={file.name: file.facts for file in files},
            order=ORDER,
            permutation=PERMUTATION,
            id_hash=TEXT_HASH,
            split_hash=SPLIT_HASH,
        )
        write_manifest(self._folder, manifest)


def row_facts(writer: DatasetWriter, bad: Tally, policy: Policy) -> RowFacts:
    """Of all rows that were written, and the bad ones."""
    kept = sum(writer.rows.values())
    return RowFacts(kept + bad.count if policy == "skip" else kept, bad.count, policy, bad.first)
