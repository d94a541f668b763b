"""Tabular data: the rows of CSV, TSV and Parquet files, streamed; a first pass counts what vocabularies need."""

import json
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dlrmx.data import fields
from dlrmx.data.columns import BagColumn, Columns, FeatureLayout, layout_of
from dlrmx.data.faults import Faults, Tally
from dlrmx.data.fields import Column
from dlrmx.data.files import find_files, format_of
from dlrmx.data.hashing import hash_texts
from dlrmx.data.manifest import OFFENDERS
from dlrmx.data.numbers import NumberLookup
from dlrmx.data.source import Extent, Piece, Told
from dlrmx.data.splits import Cuts, assign, by_place
from dlrmx.data.tables import Place, Table, missing_columns
from dlrmx.data.vocabulary import (
    OVERFLOW,
    Counter,
    HashLookup,
    Lookup,
    VocabularyLookup,
    missing_id,
    read_texts,
    vocabulary_tables,
    write_texts,
)
from dlrmx.data.writer import Losses, Part
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.schema import Feature, Recipe, Tabular


@dataclass(frozen=True)
class _Chunk:
    """Some rows of one file, the number of rows of all files before them, and where splits begin."""

    batch: pa.RecordBatch
    place: Place
    faults: Faults
    first: int
    cuts: Cuts

    def column(self, name: str) -> Column:
        column = Column(name, self.batch.column(name), self.place, self.faults)
        return fields.decoded(column) if self.place.text else column


@dataclass(frozen=True)
class _Ids:
    """One feature's bags of ids in a chunk, and its losses: rows without a value; each value's row, whether unseen."""

    bags: BagColumn
    empty: NDArray[np.bool_]
    rows: NDArray[np.int64]
    unseen: NDArray[np.bool_]
    bad: NDArray[np.bool_]
    tell: Callable[[int], str]

    def count_in(self, losses: Losses, kept: NDArray[np.int64]) -> None:
        """Add the losses of the rows that are kept."""
        goes_on = np.zeros(len(self.empty), dtype=np.bool_)
        goes_on[kept] = True
        losses.missing += int(self.empty[kept].sum())
        losses.unseen += int((self.unseen & goes_on[self.rows]).sum())
        bad = np.flatnonzero(self.bad & goes_on[self.rows])
        losses.bad.add(len(bad), [self.tell(int(position)) for position in bad[:OFFENDERS]])


class TabularSource:
    """The files of a recipe whose data section is `tabular`."""

    def __init__(self, recipe: Recipe, *, scored: bool = False) -> None:
        assert isinstance(recipe.data, Tabular)
        self._recipe, self._data = recipe, recipe.data
        self._tables = [Table(path, format_of(path, recipe.data)) for path in find_files(recipe.data)]
        self._scored = scored
        self._labelled = not scored or any(_has(table, recipe.data.label.column) for table in self._tables)
        self._wanted = _wanted(recipe, recipe.data, labelled=self._labelled)
        lists = _list_features(recipe, self._wanted, self._tables)
        self.layout = layout_of(recipe, {name for name in recipe.features if name not in lists and self._single(name)})
        self.losses = {name: Losses() for name in recipe.features}
        self.bad_rows, self.policy = Tally(), recipe.data.bad_rows
        if scored and self.policy == "skip":
            self.policy = "zero"
        self._vocabularies = vocabulary_tables(recipe)
        self.counted = bool(self._vocabularies)

    def _single(self, name: str) -> bool:
        feature = self._recipe.features[name]
        return feature.separator is None and feature.weights is None and feature.missing == "reserve"

    def pieces(self) -> list[Piece]:
        _features_by_table(self._recipe)
        return [Piece(table.path) for table in self._tables]

    def anew(self) -> "TabularSource":
        other = copy(self)
        other.losses = {name: Losses() for name in self.losses}
        other.bad_rows = Tally()
        return other

    def extent(self, piece: Piece) -> Extent:
        table = self._table(piece)
        if table.rows is not None:
            return Extent(table.rows)
        batches = table.batches([next(iter(self._wanted))], self.policy)
        return Extent(sum(batch.num_rows for batch, _, _ in batches))

    def _table(self, piece: Piece) -> Table:
        return Table(piece.path, format_of(piece.path, self._data))

    def parts(self, piece: Piece, before: Extent, vocabularies: Path) -> Iterator[Part]:
        lookups = self._lookups(vocabularies)
        for chunk in self._chunks(piece, before, list(self._wanted)):
            yield self._part(chunk, lookups)

    def _part(self, chunk: _Chunk, lookups: dict[str, Lookup]) -> Part:
        missing, faults = self._data.missing, chunk.faults
        splits, labels = self._splits(chunk), self._labels(chunk)
        dense = np.zeros((len(labels), len(self._recipe.dense)), dtype=np.float32)
        for number, (name, settings) in enumerate(self._recipe.dense.items()):
            dense[:, number] = fields.dense(chunk.column(name), settings, missing)
        found = {layout.name: self._ids(layout, chunk, lookups) for layout in self.layout.features}
        one_hot = np.zeros((len(labels), len(self.layout.one_hot)), dtype=self.layout.id_type)
        for number, layout in enumerate(self.layout.one_hot):
            one_hot[:, number] = found[layout.name].bags.ids
        bags = tuple(found[layout.name].bags for layout in self.layout.bags)
        if self._scored and self._data.bad_rows == "skip":
            labels[faults.bad] = np.nan
        columns = Columns(labels, dense, one_hot, bags)
        kept = faults.kept
        for name, ids in found.items():
            ids.count_in(self.losses[name], kept)
        faults.count_in(self.bad_rows)
        whole = len(kept) == len(labels)
        return Part(columns, splits) if whole else Part(columns.take(kept), splits[kept])

    def _chunks(self, piece: Piece, before: Extent, columns: list[str]) -> Iterator[_Chunk]:
        first = before.rows
        for batch, place, faults in self._table(piece).batches(columns, self.policy):
            yield _Chunk(batch, place, faults, first, piece.cuts)
            first += batch.num_rows

    def _splits(self, chunk: _Chunk) -> NDArray[np.uint8]:
        split = self._data.split
        if split.by != "hash":
            return by_place(chunk.cuts, chunk.first, chunk.batch.num_rows)
        if split.on is None:
            return assign(np.arange(chunk.first, chunk.first + chunk.batch.num_rows, dtype=np.uint64), split)
        return assign(hash_texts(fields.texts_of(chunk.column(split.on))), split)

    def _labels(self, chunk: _Chunk) -> NDArray[np.float32]:
        label = self._data.label
        if not self._labelled:
            return np.full(chunk.batch.num_rows, np.nan, dtype=np.float32)
        return fields.labels(chunk.column(label.column), label, self._data.missing, needed=not self._scored)

    def _bags(self, name: str, chunk: _Chunk) -> fields.Bags:
        feature = self._recipe.features[name]
        weights = None if feature.weights is None else chunk.column(feature.weights)
        return fields.bags(chunk.column(feature.column), weights, feature, self._data.missing)

    def _ids(self, layout: FeatureLayout, chunk: _Chunk, lookups: dict[str, Lookup]) -> _Ids:
        """The ids of one feature; values that make their row bad are taken as missing."""
        column = self._recipe.features[layout.name].column
        values, table = self._bags(layout.name, chunk), self._recipe.tables[layout.table]
        found = lookups[layout.table].ids(values.texts)
        if table.bad_ids == "fail" and found.bad.any():
            bad = found.bad[values.codes]
            texts = values.texts.take(pa.array(values.codes))
            what = f"is no id of table {layout.table} of {table.rows} rows"
            if self._recipe.features[layout.name].ids == "identity":
                what += f": they are 0 to {table.rows - 2}, as one row is for missing values"
            where = Column(column, texts, chunk.place, chunk.faults, values.rows)
            where.flag(
                bad, lambda position: f"{texts[position].as_py()!r} {what}", f"See tables.{layout.table}.bad_ids."
            )
            values = values.keep(~bad)
        codes, rows, empty = values.codes, values.rows, values.lengths == 0
        bags = BagColumn.from_lengths(values.lengths, found.ids[codes], values.weights)
        if self._recipe.features[layout.name].missing == "reserve" and empty.any():
            bags = _fill(bags, missing_id(layout.rows))

        def tell(position: int) -> str:
            value = values.texts[int(codes[position])].as_py()
            return f"{chunk.place.at(int(rows[position]))}: {column}: {value!r}"

        return _Ids(bags, empty, rows, found.unseen[codes], found.bad[codes], tell)

    def _lookups(self, folder: Path) -> dict[str, Lookup]:
        """For each table, how its features' values become ids."""
        lookups: dict[str, Lookup] = {}
        overflow = json.loads((folder / OVERFLOW).read_text()) if self._vocabularies else {}
        for name, feature in self._recipe.features.items():
            self.losses[name].overflow = overflow.get(feature.table, 0)
            if feature.table not in lookups:
                lookups[feature.table] = self._lookup(feature.table, feature, folder)
        return lookups

    def _lookup(self, table: str, feature: Feature, folder: Path) -> Lookup:
        settings = self._recipe.tables[table]
        if feature.ids == "vocabulary":
            number = list(self._vocabularies).index(table)
            return VocabularyLookup(read_texts(folder / f"{number}.parquet"), settings.rows)
        if feature.ids == "modulo" or feature.ids == "identity":
            return NumberLookup(settings.rows, feature.ids, settings.bad_ids)
        return HashLookup(settings.rows)

    def count(self, piece: Piece, before: Extent, folder: Path, told: Told) -> None:
        counters = {table: Counter() for table in self._vocabularies}
        features = {name: feature for name, feature in self._recipe.features.items() if feature.table in counters}
        columns = [column for feature in features.values() for column in (feature.column, feature.weights) if column]
        columns += [self._data.split.on] if self._data.split.on else []
        for chunk in self._chunks(piece, before, list(dict.fromkeys(columns))):
            train = self._splits(chunk) == 0
            for name, feature in features.items():
                values = self._bags(name, chunk)
                codes = values.codes[np.repeat(train, values.lengths)]
                counts = np.bincount(codes, minlength=len(values.texts))
                met = np.flatnonzero(counts)
                counters[feature.table].add(values.texts.take(pa.array(met)), counts[met])
            told(chunk.batch.num_rows)
        for number, counter in enumerate(counters.values()):
            counter.save(folder / f"{number}.parquet")

    def join_counts(self, folders: list[Path], folder: Path) -> None:
        overflow = {}
        for number, (table, min_count) in enumerate(self._vocabularies.items()):
            counter = Counter()
            for one in folders:
                counter.load(one / f"{number}.parquet")
            values, overflow[table] = counter.vocabulary(min_count, self._recipe.tables[table].rows)
            write_texts(folder / f"{number}.parquet", values)
        (folder / OVERFLOW).write_text(json.dumps(overflow))


def _fill(bags: BagColumn, missing: int) -> BagColumn:
    """The bags, with the id for missing values (weight 1) in the empty ones."""
    lengths = bags.lengths
    full = np.maximum(lengths, 1)
    filled = np.repeat(lengths == 0, full)
    ids = np.full(len(filled), missing, dtype=np.int64)
    ids[~filled] = bags.ids
    weights = None
    if bags.weights is not None:
        weights = np.ones(len(filled), dtype=np.float32)
        weights[~filled] = bags.weights
    return BagColumn.from_lengths(full, ids, weights)


def _has(table: Table, column: str) -> bool:
    return column in table.schema().names


def _wanted(recipe: Recipe, data: Tabular, *, labelled: bool) -> dict[str, str]:
    """The columns that are read, and the recipe's key of each."""
    wanted = {data.label.column: "data.label.column"} if labelled else {}
    wanted |= {name: f"dense.{name}" for name in recipe.dense}
    wanted |= {feature.column: f"features.{name}" for name, feature in recipe.features.items()}
    wanted |= {
        feature.weights: f"features.{name}.weights" for name, feature in recipe.features.items() if feature.weights
    }
    return wanted | ({data.split.on: "data.split.on"} if data.split.on else {})


def _list_features(recipe: Recipe, wanted: dict[str, str], tables: list[Table]) -> set[str]:
    """The features whose column holds lists. Raises InputError where a file lacks a column, or files disagree."""
    problems: list[Problem] = []
    lists: dict[str, bool] = {}
    for table in tables:
        schema = table.schema()
        lacking = missing_columns(table, schema, wanted)
        problems += lacking
        if lacking:
            continue
        for name, feature in recipe.features.items():
            here = fields.is_list(schema.field(feature.column).type)
            if here != lists.setdefault(name, here):
                what = (
                    f"column {feature.column} holds {'lists' if here else 'single values'} here, not so in other files"
                )
                problems.append(Problem(what, where=str(table.path), key=f"features.{name}"))
    if problems:
        raise InputError(problems)
    return {name for name, here in lists.items() if here}


def _features_by_table(recipe: Recipe) -> dict[str, dict[str, Feature]]:
    """Table -> its features. Raises InputError where features of one table make ids in different ways."""
    users: dict[str, dict[str, Feature]] = {}
    for name, feature in recipe.features.items():
        users.setdefault(feature.table, {})[name] = feature
    problems = [
        Problem(f"{', '.join(group)} share a table, so `ids` and `min_count` must be the same", key=f"tables.{table}")
        for table, group in users.items()
        if len({(feature.ids, feature.min_count) for feature in group.values()}) > 1
    ]
    if problems:
        raise InputError(problems)
    return users
