"""Data in Criteo's layout: from files to rows, with the columns label, I1 to I13 and C1 to C26."""

import itertools
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.columns import BagColumn, Columns, FeatureLayout, layout_of
from dlrmx.data.criteo_lines import FIELDS, Lines, count_rows, is_packed, read_lines, read_style
from dlrmx.data.criteo_values import hex_keys, numbers
from dlrmx.data.dense import BEYOND, transformed
from dlrmx.data.faults import Faults, Tally
from dlrmx.data.files import find_files
from dlrmx.data.hashing import hash_bytes
from dlrmx.data.key_ids import KeyCounter, KeyLookup, KeyVocabulary, PlainKeys, hash_keys
from dlrmx.data.manifest import OFFENDERS
from dlrmx.data.source import Extent, Piece, Told
from dlrmx.data.splits import assign, by_place
from dlrmx.data.vocabulary import OVERFLOW, missing_id, vocabulary_tables
from dlrmx.data.writer import Losses, Part
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Criteo, Feature, Recipe

# A plain file is cut into pieces of so many bytes or more, at most 64: each core has work, a kill costs little.
PIECE_BYTES = 64 << 20
MOST_PIECES = 64
# So many vocabularies are made at once; one of a million values takes 200 MB meanwhile.
MOST_JOINED = 4

Bools = NDArray[np.bool_]

NAMES = ("label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27)))


_UNLABELLED = (
    "Criteo's test file is such: `dlrmx evaluate RUN --data` scores it. Train on train.txt or day_0 to day_23."
)


@dataclass(frozen=True)
class _Chunk:
    """Some rows of a piece; `first` rows of all files lie before them, `line` lines of the file before the piece."""

    lines: Lines
    piece: Piece
    first: int
    line: int
    faults: Faults

    def at(self, row: int) -> str:
        return f"{self.piece.path}:{self.line + self.lines.numbers[row]}"

    def flag(self, bad: Bools, field: int | None, what: Callable[[int], str], hint: str = "") -> None:
        """The marked rows (N,) are bad, in this field; `what` says why, by row."""
        rows = np.flatnonzero(bad)
        name = "" if field is None else NAMES[field]
        if len(rows):
            self.faults.flag(rows, self.at, name, lambda position: what(int(rows[position])), hint)

    def shown(self, field: int, what: str) -> Callable[[int], str]:
        """For a row, the field as it stands in the file, and what there is to say of it."""
        return lambda row: f"{self.lines.text(row, field).decode(errors='backslashreplace')!r}{what}"


@dataclass(frozen=True)
class _Ids:
    """One feature, each array (N,): ids; rows without one; ids of unseen values; ids in the place of bad ones."""

    ids: NDArray[np.int64]
    absent: Bools
    unseen: Bools
    bad: Bools


class CriteoSource:
    """The files of a recipe whose data section is `criteo`."""

    def __init__(self, recipe: Recipe, *, scored: bool = False) -> None:
        assert isinstance(recipe.data, Criteo)
        self._scored = scored
        self._recipe, self._data = recipe, recipe.data
        reserving = {name for name, feature in recipe.features.items() if feature.missing == "reserve"}
        self.layout = layout_of(recipe, reserving)
        self._fields = np.array([NAMES.index(feature.column) for feature in recipe.features.values()])
        self._dense_fields = np.array([NAMES.index(name) for name in recipe.dense], dtype=np.int64)
        self._missing = {layout.rows: missing_id(layout.rows) for layout in self.layout.features}
        self.losses = {name: Losses() for name in recipe.features}
        self.bad_rows, self.policy = Tally(), recipe.data.bad_rows
        if scored and self.policy == "skip":
            self.policy = "zero"
        self._vocabularies = vocabulary_tables(recipe)
        self.counted = bool(self._vocabularies)
        # Shared with those of `anew`: what is looked up in one piece serves the next.
        self._known: dict[str, KeyLookup] = {}

    def pieces(self) -> list[Piece]:
        found = []
        for path in find_files(self._data):
            style = read_style(path)
            if style.width < FIELDS and not self._scored:
                raise InputError(f"{path}:{style.line}: 39 columns: no label", hint=_UNLABELLED)
            size = 0 if is_packed(path) else path.stat().st_size
            step = max(PIECE_BYTES, -(-size // MOST_PIECES))
            cuts = list(range(step, size, step))
            found += [Piece(path, begin, end) for begin, end in zip([0, *cuts], [*cuts, None], strict=True)]
        return found

    def anew(self) -> "CriteoSource":
        other = copy(self)
        other.losses = {name: Losses() for name in self.losses}
        other.bad_rows = Tally()
        return other

    def extent(self, piece: Piece) -> Extent:
        return count_rows(piece)

    def parts(self, piece: Piece, before: Extent, vocabularies: Path) -> Iterator[Part]:
        lookups = self._lookups(vocabularies)
        for chunk in self._chunks(piece, before):
            yield self._part(chunk, lookups)

    def _chunks(self, piece: Piece, before: Extent) -> Iterator[_Chunk]:
        first = before.rows
        for lines in read_lines(piece):
            yield _Chunk(lines, piece, first, before.lines, Faults(len(lines.numbers), self.policy))
            first += len(lines.numbers)

    def _part(self, chunk: _Chunk, lookups: dict[str, KeyLookup]) -> Part:
        fields = chunk.lines.fields
        width = chunk.lines.width
        chunk.flag(fields != width, None, lambda row: f"{fields[row]} fields, not {width}")
        labels, dense, splits = self._labels(chunk), self._dense(chunk), self._splits(chunk)
        found = self._ids(chunk, lookups)
        one_hot = np.zeros((len(labels), len(self.layout.one_hot)), dtype=self.layout.id_type)
        for number, layout in enumerate(self.layout.one_hot):
            one_hot[:, number] = found[layout.name].ids
        if self._scored and self._data.bad_rows == "skip":
            labels[chunk.faults.bad] = np.nan
        columns = Columns(labels, dense, one_hot, tuple(_bags(found[layout.name]) for layout in self.layout.bags))
        kept = chunk.faults.kept
        chunk.faults.count_in(self.bad_rows)
        for layout in self.layout.features:
            self._count_losses(chunk, layout, found[layout.name], kept)
        return Part(columns, splits) if len(kept) == len(labels) else Part(columns.take(kept), splits[kept])

    def _labels(self, chunk: _Chunk) -> NDArray[np.float32]:
        values = numbers(chunk.lines, np.array([0])).values[0]
        bad = (values != 0) & (values != 1)
        if self._scored:
            bad &= chunk.lines.starts[:, 0] != chunk.lines.ends[:, 0]
        shown = chunk.shown(0, ", not 0 or 1")

        def what(row: int) -> str:
            missing = chunk.lines.starts[row, 0] == chunk.lines.ends[row, 0]
            return "the label is missing" if missing else f"the label is {shown(row)}"

        chunk.flag(bad, 0, what)
        return np.where(bad, 0, values).astype(np.float32)

    def _dense(self, chunk: _Chunk) -> NDArray[np.float32]:
        found = numbers(chunk.lines, self._dense_fields)
        dense = np.zeros(found.values.shape[::-1], dtype=np.float32)
        for place, (field, settings) in enumerate(zip(self._dense_fields, self._recipe.dense.values(), strict=True)):
            chunk.flag(found.bad[place], field, chunk.shown(int(field), " is no finite number"))
            values, beyond = transformed(found.values[place], settings)
            chunk.flag(beyond, field, chunk.shown(int(field), BEYOND), "transform: log1p?")
            dense[:, place] = np.where(beyond, settings.missing, values)
        return dense

    def _splits(self, chunk: _Chunk) -> NDArray[np.uint8]:
        split, rows = self._data.split, len(chunk.lines.numbers)
        if split.by != "hash":
            return by_place(chunk.piece.cuts, chunk.first, rows)
        if split.on is None:
            return assign(np.arange(chunk.first, chunk.first + rows, dtype=np.uint64), split)
        return assign(hash_keys(hex_keys(chunk.lines, np.array([NAMES.index(split.on)])).values[0]), split)

    def _ids(self, chunk: _Chunk, lookups: dict[str, KeyLookup]) -> dict[str, _Ids]:
        found = {}
        keys = hex_keys(chunk.lines, self._fields)
        for place, layout in enumerate(self.layout.features):
            field, table = int(self._fields[place]), self._recipe.tables[layout.table]
            values, wrong = keys.values[place], keys.bad[place]
            if wrong.any() and table.bad_ids == "hash":
                values[wrong] = [_hash(chunk.lines.text(int(row), field)) for row in np.flatnonzero(wrong)]
            looked_up = lookups[layout.table].ids(values)
            absent, bad = keys.empty[place], (looked_up.bad & ~keys.empty[place]) | wrong
            if table.bad_ids == "fail" and bad.any():
                what = f" is no id of table {layout.table}: hexadecimal, of {table.rows} rows"
                hint = f"See tables.{layout.table}.bad_ids."
                chunk.flag(bad, field, chunk.shown(field, what), hint)
                absent, bad = absent | bad, np.zeros_like(bad)
            ids = looked_up.ids
            ids[absent] = self._missing[layout.rows]
            found[layout.name] = _Ids(ids, absent, looked_up.unseen & ~absent, bad)
        return found

    def _count_losses(self, chunk: _Chunk, layout: FeatureLayout, ids: _Ids, kept: NDArray[np.int64]) -> None:
        """Of the rows that are kept."""
        losses, field = self.losses[layout.name], NAMES.index(self._recipe.features[layout.name].column)
        losses.missing += int(ids.absent[kept].sum())
        losses.unseen += int(ids.unseen[kept].sum())
        bad = kept[ids.bad[kept]]
        shown = chunk.shown(field, "")
        told = [f"{chunk.at(row)}: {NAMES[field]}: {shown(row)}" for row in bad[:OFFENDERS].tolist()]
        losses.bad.add(len(bad), told)

    def _lookups(self, folder: Path) -> dict[str, KeyLookup]:
        """For each table, how its features' keys become ids."""
        for feature in self._recipe.features.values():
            if feature.table not in self._known:
                self._known[feature.table] = self._lookup(folder, feature)
        if self._vocabularies:
            overflow = json.loads((folder / OVERFLOW).read_text())
            for name, feature in self._recipe.features.items():
                self.losses[name].overflow = overflow.get(feature.table, 0)
        return self._known

    def _lookup(self, folder: Path, feature: Feature) -> KeyLookup:
        settings = self._recipe.tables[feature.table]
        if feature.table not in self._vocabularies:
            return PlainKeys(feature, settings)
        number = list(self._vocabularies).index(feature.table)
        return KeyVocabulary.load(folder / f"{number}.npy", settings.rows)

    def count(self, piece: Piece, before: Extent, folder: Path, told: Told) -> None:
        counters = {table: KeyCounter() for table in self._vocabularies}
        features = [feature for feature in self._recipe.features.values() if feature.table in counters]
        fields = np.array([NAMES.index(feature.column) for feature in features])
        for chunk in self._chunks(piece, before):
            keys = hex_keys(chunk.lines, fields)
            counts = (self._splits(chunk) == 0) & ~keys.empty & ~keys.bad
            for place, feature in enumerate(features):
                counters[feature.table].add(keys.values[place][counts[place]])
            told(len(chunk.lines.numbers))
        for number, counter in enumerate(counters.values()):
            counter.save(folder / f"{number}.npy")

    def join_counts(self, folders: list[Path], folder: Path) -> None:
        def join(number: int, table: str, min_count: int) -> int:
            counter = KeyCounter()
            for one in folders:
                counter.load(one / f"{number}.npy")
            keys, overflow = counter.vocabulary(min_count, self._recipe.tables[table].rows)
            KeyVocabulary.save(folder / f"{number}.npy", keys)
            return overflow

        # Threads, as sorting is all they do.
        pool = ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), MOST_JOINED))
        try:
            left_out = pool.map(join, itertools.count(), self._vocabularies, self._vocabularies.values())
            overflow = dict(zip(self._vocabularies, left_out, strict=True))
        finally:
            pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for those that have not begun
        (folder / OVERFLOW).write_text(json.dumps(overflow))


def _bags(found: _Ids) -> BagColumn:
    present = ~found.absent
    return BagColumn.from_lengths(present.astype(np.int64), found.ids[present], None)


def _hash(text: bytes) -> np.uint64:
    """text64-v1 of one text."""
    return np.uint64(hash_bytes(np.frombuffer(text, dtype=np.uint8), np.array([0, len(text)]))[0])
