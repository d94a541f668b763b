"""Joins prepared datasets of one layout into one: the rows of each split in the order of the datasets."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dlrmx.data.columns import Layout, SplitFiles, lookups_file, stored_layout
from dlrmx.data.lookups import Lookups
from dlrmx.data.manifest import OFFENDERS, FeatureFacts, FileFacts, Manifest, RowFacts, SplitFacts, read_manifest
from dlrmx.data.output import OutputFile
from dlrmx.data.splits import SPLITS
from dlrmx.errors import InputError

COPY_BYTES = 8 << 20


class Damaged(InputError):
    """A dataset that was to be joined is not what was written."""

    def __init__(self, folder: Path, what: str) -> None:
        self.folder = folder
        super().__init__(what, hint=f"Remove {folder} and prepare again.")


@dataclass(frozen=True)
class _Dataset:
    """One that is joined to others."""

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path) -> "_Dataset":
        try:
            return cls(folder, read_manifest(folder))
        except InputError as error:
            raise Damaged(folder, str(error)) from None

    def read(self, name: str) -> Iterator[bytes]:
        """The bytes of a file. Raises Damaged at its end, if they are not those that were written."""
        total = 0
        with (self.folder / name).open("rb") as file:
            while raw := file.read(COPY_BYTES):
                total = zlib.crc32(raw, total)
                yield raw
        if total != self.manifest.files[name].crc32:
            raise Damaged(self.folder, f"{self.folder / name}: its content is not what was written (CRC-32)")


def merge(folders: Sequence[Path], target: Path) -> Manifest:
    """Write the joined files into the existing, empty folder `target`; the manifest is returned, not written.

    Its fingerprint and sources are those of the last dataset. Raises Damaged where one is not what was written.
    """
    datasets = [_Dataset.open(folder) for folder in folders]
    manifests = [dataset.manifest for dataset in datasets]
    layout = stored_layout(manifests[0])
    files: dict[str, FileFacts] = {}
    for split in SPLITS:
        names = SplitFiles(split)
        for name in _plain_files(names, layout):
            files[name] = _join(datasets, target, name)
        for number in range(len(layout.bags)):
            name = names.bag(number).offsets
            files[name] = _join_offsets(datasets, target, name)
    features = {}
    for number, feature in enumerate(layout.features):
        lookups = Lookups(feature.rows)
        for dataset in datasets:
            lookups.join(b"".join(dataset.read(lookups_file(number))))
        with ExitStack() as stack:
            file = OutputFile(target / lookups_file(number))
            stack.callback(file.close)
            file.write_bytes(lookups.to_bytes())
        files[file.name] = file.facts
        features[feature.name] = _feature_facts([manifest.features[feature.name] for manifest in manifests], lookups)
    return replace(
        manifests[-1],
        by_file=_by_file(manifests),
        rows=_row_facts([manifest.rows for manifest in manifests]),
        splits={name: _split_facts([manifest.splits[name] for manifest in manifests]) for name in SPLITS},
        features=_with_pooling(features, manifests),
        files=files,
    )


def _plain_files(names: SplitFiles, layout: Layout) -> Iterator[str]:
    """Those that are joined by writing one after the other."""
    yield from (names.labels, names.dense, names.one_hot)
    for number, feature in enumerate(layout.bags):
        yield names.bag(number).ids
        if feature.weighted:
            yield names.bag(number).weights


def _join(datasets: Sequence[_Dataset], target: Path, name: str) -> FileFacts:
    with ExitStack() as stack:
        out = OutputFile(target / name)
        stack.callback(out.close)
        for dataset in datasets:
            for raw in dataset.read(name):
                out.write_bytes(raw)
    return out.facts


def _join_offsets(datasets: Sequence[_Dataset], target: Path, name: str) -> FileFacts:
    """Each dataset's offsets begin where those before it end."""
    with ExitStack() as stack:
        out = OutputFile(target / name)
        stack.callback(out.close)
        end = 0
        out.write(np.zeros(1, dtype="<i8"))
        for dataset in datasets:
            first, last = 1, 0  # the leading 0 is written once
            for raw in dataset.read(name):
                own = np.frombuffer(raw, dtype="<i8")
                out.write(own[first:] + end)
                first, last = 0, int(own[-1])
            end += last
    return out.facts


def _by_file(manifests: Sequence[Manifest]) -> dict[str, list[int]]:
    """A file may lie in several datasets, one after the other."""
    found: dict[str, list[int]] = {}
    for manifest in manifests:
        for path, rows in manifest.by_file.items():
            found[path] = [a + b for a, b in zip(found.get(path, [0] * len(rows)), rows, strict=True)]
    return found


def _row_facts(facts: Sequence[RowFacts]) -> RowFacts:
    first = [place for one in facts for place in one.first][:OFFENDERS]
    return RowFacts(sum(one.read for one in facts), sum(one.bad for one in facts), facts[-1].policy, first)


def _split_facts(facts: Sequence[SplitFacts]) -> SplitFacts:
    rows = sum(one.rows for one in facts)
    labelled = sum(one.labelled for one in facts)
    # Labels are 0 or 1: their sum is whole.
    positive = sum(round((one.label_mean or 0.0) * one.labelled) for one in facts)
    return SplitFacts(rows, labelled, positive / labelled if labelled else None, None)


def _feature_facts(facts: Sequence[FeatureFacts], lookups: Lookups) -> FeatureFacts:
    return replace(
        facts[-1],
        max_pooling=max(one.max_pooling for one in facts),
        distinct=lookups.distinct,
        missing=sum(one.missing for one in facts),
        unseen=sum(one.unseen for one in facts),
        bad=sum(one.bad for one in facts),
        first_bad=[place for one in facts for place in one.first_bad][:OFFENDERS],
        histogram=lookups.histogram.tolist(),
    )


def _with_pooling(features: dict[str, FeatureFacts], manifests: Sequence[Manifest]) -> dict[str, FeatureFacts]:
    rows = sum(split.rows for manifest in manifests for split in manifest.splits.values())
    return {
        name: replace(facts, mean_pooling=facts.expand * sum(facts.histogram) / rows if rows else 0.0)
        for name, facts in features.items()
    }
