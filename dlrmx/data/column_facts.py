"""What a sampled column holds: numbers, texts or lists of them, how many different ones, and what parts them."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from dlrmx.data.fields import is_list

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

# Texts that mean a missing value where all others of a column are numbers.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none", "\\N", "-", "?")
# What a recipe takes for missing where it says nothing.
MISSING = ("", "NA")
SEPARATORS = ("|", ";", ",", " ")
SEPARATED = 0.1  # share of the values that hold a separator, if it is one
FEW = 64  # of so many different numbers all are told
LONGEST_NUMBER = 15  # digits that a 64-bit float holds exactly


@dataclass(frozen=True)
class Numbers:
    """What a column of numbers holds. few: the different values and their counts, in order; None where there are many.

    exact: without leading zeros, which codes have, and of no more digits than a float holds.
    """

    whole: bool
    exact: bool
    minimum: float
    maximum: float
    mean: float
    std: float
    few: tuple[tuple[float, int], ...] | None


@dataclass(frozen=True)
class ColumnFacts:
    """One column of a sample.

    kind: "other" is what cannot be read (dates, structs). missing: rows without a value. distinct: different values (of
    lists and separated texts: elements) in the sample; estimate: in all rows. words: texts that mean missing beside
    numbers. separator: what parts the values of a text. mean_values, longest: values per row.
    """

    name: str
    kind: Literal["numbers", "text", "list", "other"]
    type: str
    missing: int = 0
    distinct: int = 0
    estimate: int = 0
    numbers: Numbers | None = None
    words: tuple[str, ...] = ()
    separator: str | None = None
    mean_values: float = 1.0
    longest: int = 1


def column_facts(name: str, values: pa.Array, rows_in_all: int) -> ColumnFacts:
    """The facts of a column whose sampled values are given, of a table that has `rows_in_all` rows."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if is_list(kind):
        return _list_facts(name, values, rows_in_all, type_=str(kind), missing=0)
    if _is_text(kind):
        return _text_facts(name, values.cast(pa.string()), rows_in_all)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64(), safe=False)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_null(kind):
        return _number_facts(name, values, rows_in_all, type_=str(kind))
    return ColumnFacts(name, "other", str(kind))


def estimate_distinct(counts: Int64s, sampled: int, in_all: int) -> int:
    """Different values in all entries, from how often each was met in the sampled ones.

    Charikar et al. 2000 (GEE): those met once stand for sqrt(in_all / sampled) each, the others for themselves. The
    ratio error is at most sqrt(in_all / sampled), and no estimator does better in the worst case.
    """
    once = int((counts == 1).sum())
    scale = sqrt(max(in_all, sampled) / sampled) if sampled else 1.0
    return min(round(len(counts) - once + scale * once), max(in_all, len(counts)))


def _estimate(counts: Int64s, rows: int, rows_in_all: int) -> int:
    """Different values in all rows, if these hold as many values each as the sampled ones."""
    values = int(counts.sum())
    return estimate_distinct(counts, values, round(rows_in_all * values / max(rows, 1)))


def _text_facts(name: str, texts: pa.Array, in_all: int) -> ColumnFacts:
    """Numbers, where every text is one or means missing; else texts, which a separator may part."""
    counted = compute.value_counts(texts.drop_null())
    values, counts = counted.field(0), counted.field(1).to_numpy().astype(np.int64)
    trimmed = compute.utf8_trim_whitespace(values)
    absent = _is_in(trimmed, MISSING_WORDS)
    numbers = _parse(trimmed.filter(pa.array(~absent)))
    if numbers is not None:
        words = tuple(word for word in values.filter(pa.array(absent)).to_pylist() if word not in MISSING)
        code = compute.match_substring_regex(trimmed, f"^[-+]?(0[0-9]|[0-9]{{{LONGEST_NUMBER + 1}}})")
        exact = not compute.any(code).as_py()
        return _numbers_of(
            name, numbers, counts[~absent], rows=len(texts), in_all=in_all, exact=exact, words=words, type_="text"
        )
    absent = _is_in(values, MISSING)
    present, how_often = values.filter(pa.array(~absent)), counts[~absent]
    missing = len(texts) - int(how_often.sum())
    separator = _separator(present, how_often)
    if separator is not None:
        lists = compute.split_pattern(texts.filter(pa.array(~_is_in(texts, MISSING))).drop_null(), separator)
        return _list_facts(name, lists, in_all, type_="text", missing=missing, separator=separator)
    estimate = _estimate(how_often, len(texts), in_all)
    return ColumnFacts(name, "text", "text", missing, len(present), estimate)


def _number_facts(name: str, values: pa.Array, in_all: int, *, type_: str) -> ColumnFacts:
    exact = bool(pa.types.is_floating(values.type) or pa.types.is_null(values.type) or _fits(values))
    # Counted before they become floats, which large integers share.
    counted = compute.value_counts(values.drop_null())
    different = counted.field(0).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    finite = np.isfinite(different)
    different, counts = different[finite], counted.field(1).to_numpy().astype(np.int64)[finite]
    return _numbers_of(name, different, counts, rows=len(values), in_all=in_all, exact=exact, words=(), type_=type_)


def _numbers_of(
    name: str,
    values: Float64s,
    counts: Int64s,
    *,
    rows: int,
    in_all: int,
    exact: bool,
    words: tuple[str, ...],
    type_: str,
) -> ColumnFacts:
    """The facts of different numbers, each with its count, among `rows` sampled rows."""
    present = int(counts.sum())
    if present == 0:
        return ColumnFacts(name, "numbers", type_, missing=rows)
    mean = float(np.average(values, weights=counts))
    order = np.argsort(values)
    numbers = Numbers(
        whole=bool((values == np.floor(values)).all()),
        exact=exact,
        minimum=float(values.min()),
        maximum=float(values.max()),
        mean=mean,
        std=_std(values, counts, mean),
        few=tuple((float(values[n]), int(counts[n])) for n in order) if len(values) <= FEW else None,
    )
    estimate = _estimate(counts, rows, in_all)
    return ColumnFacts(name, "numbers", type_, rows - present, len(values), estimate, numbers, words)


def _std(values: Float64s, counts: Int64s, mean: float) -> float:
    """Of values whose squares may be beyond the range of a float64."""
    largest = float(np.abs(values).max()) or 1.0
    return largest * sqrt(float(np.average((values / largest - mean / largest) ** 2, weights=counts)))


def _list_facts(
    name: str, lists: pa.Array, in_all: int, *, type_: str, missing: int, separator: str | None = None
) -> ColumnFacts:
    """The facts of the elements; `missing` rows are not among `lists`."""
    flat = compute.list_flatten(lists)
    if pa.types.is_dictionary(flat.type):
        flat = flat.cast(flat.type.value_type)
    if not (_is_text(flat.type) or pa.types.is_integer(flat.type)):
        return ColumnFacts(name, "other", type_)
    lengths = compute.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    rows = len(lists) + missing
    counts = compute.value_counts(flat.drop_null()).field(1).to_numpy().astype(np.int64)
    sampled = int(counts.sum())
    return ColumnFacts(
        name,
        "list",
        type_,
        missing=missing + int((lengths == 0).sum()),
        distinct=len(counts),
        estimate=_estimate(counts, rows, in_all),
        separator=separator,
        mean_values=sampled / max(rows, 1),
        longest=int(lengths.max(initial=0)),
    )


def _separator(texts: pa.Array, counts: Int64s) -> str | None:
    """What parts the different texts: it stands in many of them, and there are fewer different parts than texts.

    A bar is always one: it is nothing else in practice. Comma and blank also stand in plain text, so that parts have
    to come again often.
    """
    for separator in SEPARATORS:
        holds = compute.match_substring(texts, separator).to_numpy(zero_copy_only=False)
        if counts[holds].sum() < max(SEPARATED * counts.sum(), 1):
            continue
        parts = len(compute.list_flatten(compute.split_pattern(texts, separator)).unique())
        if separator == "|" or parts < (len(texts) if separator == ";" else len(texts) / 2):
            return separator
    return None


def _parse(texts: pa.Array) -> Float64s | None:
    """All texts as finite numbers; None where one is not."""
    try:
        found: Float64s = texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return found if np.isfinite(found).all() else None


def _fits(values: pa.Array) -> bool:
    """Whether integers keep their value as 64-bit floats."""
    bounds = compute.min_max(values).as_py()
    return all(bound is None or abs(bound) <= 2**53 for bound in bounds.values())


def _is_in(texts: pa.Array, words: tuple[str, ...]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = compute.is_in(texts, pa.array(words, pa.string())).to_numpy(zero_copy_only=False)
    return found


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
