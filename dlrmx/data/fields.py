"""Columns of a table as numbers, or as bags of values: parsed, checked, each error by file and row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from dlrmx.data.dense import BEYOND, FLOAT32_MAX, transformed
from dlrmx.data.faults import Faults
from dlrmx.data.tables import Place
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.schema import Dense, Feature, Label

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """One column of a batch, and where it stands. `rows`: the row of each value, where it has several (or none)."""

    name: str
    values: pa.Array
    place: Place
    faults: Faults
    rows: Int64s | None = None

    def refuse(self, what: str, hint: str = "") -> InputError:
        """The error for the column as a whole, by file and column."""
        return InputError([Problem(what, where=str(self.place.file), key=self.name, hint=hint)])

    def flag(self, bad: NDArray[np.bool_], what: Callable[[int], str], hint: str = "") -> None:
        """The marked values make their rows bad; `what` says why, by position.

        Raises InputError for the first one, by file, row and column, where the recipe's policy is to fail.
        """
        positions = np.flatnonzero(bad)
        if len(positions) == 0:
            return
        rows = positions if self.rows is None else self.rows[positions]
        self.faults.flag(rows, self.place.at, self.name, lambda found: what(int(positions[found])), hint)

    def with_values(self, values: pa.Array, rows: Int64s | None = None) -> "Column":
        """Other values of the same column."""
        return Column(self.name, values, self.place, self.faults, self.rows if rows is None else rows)


def decoded(column: Column) -> Column:
    """A text file's bytes as text; what is not UTF-8 is flagged, and missing."""
    try:
        return column.with_values(column.values.cast(pa.string()))
    except pa.ArrowInvalid:
        values = column.values
        bad = np.array([not _is_utf8(value) for value in values.to_pylist()])
        column.flag(bad, lambda position: f"{values[position].as_py()!r} is not UTF-8")
        return column.with_values(
            compute.if_else(pa.array(bad), pa.scalar(None, pa.binary()), values).cast(pa.string())
        )


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def numbers(column: Column, missing: Sequence[str]) -> Float64s:
    """Each value as a float64; NaN where it is missing. What is no finite number is flagged, and taken as missing."""
    values = column.values
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    text = _is_text(values.type)
    if text:
        parsed = _parse_numbers(column, _without(values.cast(pa.string()), missing))
    elif _is_number(values.type) or pa.types.is_decimal(values.type):
        parsed = values.cast(pa.float64(), safe=False)
    else:
        raise column.refuse(f"holds {values.type}, not numbers")
    found: Float64s = parsed.to_numpy(zero_copy_only=False).astype(np.float64)
    # A NaN in a column of floats is how many writers say missing; a text must be named in data.missing.
    bad = np.isinf(found) | (np.isnan(found) & parsed.is_valid().to_numpy(zero_copy_only=False) & text)
    column.flag(bad, lambda position: f"{values[position].as_py()!r} is not a finite number", _NAME_MISSING)
    found[bad] = np.nan
    return found


_NAME_MISSING = "If it means a missing value, name it in data.missing."


def labels(column: Column, label: Label, missing: Sequence[str], *, needed: bool = True) -> NDArray[np.float32]:
    """0 or 1 for each row; a bad one is flagged, and 0; a missing one is bad, or NaN where it is not needed."""
    values = numbers(column, missing)
    absent = np.isnan(values)
    gap = 0.0 if needed else np.nan
    if needed:
        column.flag(absent, lambda position: "the label is missing")
    if label.threshold is not None:
        return np.where(absent, gap, values >= label.threshold).astype(np.float32)
    bad = (values != 0) & (values != 1) & ~absent
    hint = "Labels are 0 and 1. Set data.label.threshold to make them of another number."
    column.flag(bad, lambda position: f"the label is {values[position]:g}", hint)
    return np.where(absent, gap, np.where(bad, 0, values)).astype(np.float32)


def dense(column: Column, settings: Dense, missing: Sequence[str]) -> NDArray[np.float32]:
    """Each value transformed, in float64; a missing one is the configured value."""
    values, bad = transformed(numbers(column, missing), settings)
    column.flag(bad, lambda position: f"{values[position]:g}{BEYOND}", "transform: log1p?")
    return np.where(bad, settings.missing, values).astype(np.float32)


@dataclass(frozen=True)
class Bags:
    """One feature's values in a batch of n rows, m values in all.

    lengths (n,); codes (m,) positions in `texts`; `texts` the different values; weights (m,) or None.
    """

    lengths: Int64s
    codes: Int64s
    texts: pa.Array
    weights: NDArray[np.float32] | None

    @property
    def rows(self) -> Int64s:
        """The row of each value, (m,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def keep(self, values: NDArray[np.bool_]) -> "Bags":
        """Without the values that are not marked."""
        lengths = np.bincount(self.rows[values], minlength=len(self.lengths))
        return Bags(lengths, self.codes[values], self.texts, None if self.weights is None else self.weights[values])


def bags(column: Column, weights: Column | None, feature: Feature, missing: Sequence[str]) -> Bags:
    """The values of each row: missing ones left out, at most `max_ids` of the others."""
    lengths, flat = _flatten(column, feature.separator)
    codes, texts = _encode(flat, missing)
    kept = codes >= 0
    scales = None
    if weights is not None:
        scales = _scales(weights, lengths, feature.separator, missing)
        unweighted = kept & np.isnan(scales)
        each = weights.with_values(weights.values, flat.rows)
        each.flag(unweighted, lambda position: f"no weight for a value of {column.name}")
        large = np.abs(scales) > FLOAT32_MAX
        each.flag(large, lambda position: f"a weight of {column.name} is beyond the range of a 32-bit float")
        scales[large] = np.nan
        kept &= ~(unweighted | large)
    found = Bags(lengths, codes, texts, None if scales is None else scales.astype(np.float32)).keep(kept)
    if feature.max_ids is None:
        return found
    return found.keep(_within(found.rows, len(lengths)) < feature.max_ids)


def _scales(weights: Column, lengths: Int64s, separator: str | None, missing: Sequence[str]) -> Float64s:
    """The weight of each value, NaN where it has none; rows that have not as many weights as values are flagged."""
    found, flat = _flatten(weights, separator)
    uneven = lengths != found
    weights.flag(uneven, lambda row: f"{found[row]} weights for {lengths[row]} values")
    scales = np.full(int(lengths.sum()), np.nan)
    scales[np.repeat(~uneven, lengths)] = numbers(flat, missing)[np.repeat(~uneven, found)]
    return scales


def texts_of(column: Column) -> pa.Array:
    """Each value as text: integers in decimal, so that CSV and Parquet agree; null where missing or flagged."""
    values = column.values
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if pa.types.is_floating(kind):
        # Integers with missing values among them often come as floats.
        values = values.cast(pa.float64())
        values = compute.if_else(compute.is_nan(values), pa.scalar(None, pa.float64()), values)
        fractions = compute.not_equal(values, compute.floor(values)).fill_null(False).to_numpy(zero_copy_only=False)
        outside = compute.greater(compute.abs(values), 2.0**53).fill_null(False).to_numpy(zero_copy_only=False)
        bad, given = fractions | outside, values
        hint = "Store the column as text or integers, or give it under `dense`."
        column.flag(bad, lambda position: f"{given[position].as_py()!r} is no category", hint)
        values = compute.if_else(pa.array(bad), pa.scalar(None, pa.float64()), values).cast(pa.int64())
    if _is_text(kind) or _is_number(kind):
        return values.cast(pa.string())
    raise column.refuse(f"holds {kind}: categories are text or integers")


def _encode(column: Column, missing: Sequence[str]) -> tuple[Int64s, pa.Array]:
    """The values' positions among the different texts, -1 where missing; and these texts."""
    encoded = texts_of(column).dictionary_encode()
    texts = encoded.dictionary
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    absent = compute.is_in(texts, pa.array(missing, pa.string())).to_numpy(zero_copy_only=False)
    if absent.any():
        codes[(codes >= 0) & absent[codes]] = -1
    return codes, texts


def _flatten(column: Column, separator: str | None) -> tuple[Int64s, Column]:
    """Values per row, and all values in one column. A null list has none, a plain column one in each row."""
    values = column.values
    if separator is not None and not is_list(values.type):
        values = compute.split_pattern(texts_of(column), separator)
    if not is_list(values.type):
        return np.ones(len(values), dtype=np.int64), column
    counts = compute.list_value_length(values).fill_null(0)
    lengths = counts.to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return lengths, column.with_values(compute.list_flatten(values), rows)


def _within(rows: Int64s, num_rows: int) -> Int64s:
    """The place of each value within its row, for `rows` that ascend."""
    counts = np.bincount(rows, minlength=num_rows)
    begins = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])[:-1]
    return np.asarray(np.arange(len(rows)) - begins[rows])


def _without(texts: pa.Array, missing: Sequence[str]) -> pa.Array:
    absent = compute.is_in(texts, pa.array(missing, pa.string()))
    return compute.if_else(absent, pa.scalar(None, pa.string()), texts)


def _parse_numbers(column: Column, texts: pa.Array) -> pa.Array:
    trimmed = compute.utf8_trim_whitespace(texts)
    try:
        return trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        bad = np.array([not _parses(text) for text in trimmed])
        column.flag(bad, lambda position: f"{texts[position].as_py()!r} is not a number", _NAME_MISSING)
        return compute.if_else(pa.array(bad), pa.scalar(None, pa.string()), trimmed).cast(pa.float64())


def _parses(text: Any) -> bool:
    try:
        text.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)
