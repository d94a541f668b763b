"""What each surveyed column is for: the label, a dense column, a feature with its table, or left out, and why."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dlrmx.data.column_facts import ColumnFacts, Numbers
from dlrmx.data.survey import Survey
from dlrmx.errors import InputError

# Words of column names, best first.
LABELS = ("label", "target", "y", "click", "clicked", "is_click", "conversion", "converted", "response", "purchased")
RATINGS = ("rating", "stars", "score")
IDENTIFIER = re.compile(
    r"(^|_)(id|ids|uid|uuid|guid|key|code|hash|zip|zipcode|postcode|index)$|[a-z](Id|ID)$|^Unnamed: [0-9]+$", re.ASCII
)
TIME = re.compile(r"(^|_)(timestamp|datetime|date|time|ts)$|_at$", re.ASCII | re.IGNORECASE)
CRITEO_DENSE = tuple(f"I{number}" for number in range(1, 14))
CRITEO_FEATURES = tuple(f"C{number}" for number in range(1, 27))

FEW_NUMBERS = 32  # whole numbers with so few different values are taken for codes
EARLIEST_TIME = 1e7  # 20240101, or seconds since 1970
ENOUGH_ROWS = 20  # a column that never repeats itself in so many rows is an id of rows
HEAVY_TAIL = 10.0  # the largest value is so many standard deviations, or means, from zero
VOCABULARY = 10_000  # up to so many different values: a row for each
HEADROOM = 1.2  # rows of a table per value, for values that the sample did not have
LARGEST_TABLE = 10_000_000  # rows


@dataclass(frozen=True)
class Label:
    """The label. look: why it should be looked at, here as below."""

    column: str
    threshold: float | None
    positive_rate: float
    look: str = ""


@dataclass(frozen=True)
class DenseDraft:
    """A dense column. note: what the sample says of it, here as below."""

    column: str
    transform: Literal["none", "log1p", "standardize"]
    numbers: Numbers | None
    note: str
    look: str = ""


@dataclass(frozen=True)
class FeatureDraft:
    """A feature under a name that a recipe allows, and its table's rows."""

    name: str
    column: str
    ids: Literal["hash", "vocabulary"]
    separator: str | None
    rows: int
    note: str
    look: str = ""


@dataclass(frozen=True)
class LeftOut:
    """A column that the recipe does not use, and the reason."""

    column: str
    why: str
    look: bool = False


@dataclass(frozen=True)
class Draft:
    """A recipe's columns. kind: of its data section; words: texts beside "" and NA that mean a missing value."""

    kind: Literal["tabular", "criteo"]
    label: Label
    dense: tuple[DenseDraft, ...]
    features: tuple[FeatureDraft, ...]
    left_out: tuple[LeftOut, ...]
    words: tuple[str, ...]


def draft(found: Survey) -> Draft:
    """What each column is for. Raises InputError where none can be the label, or none is categorical."""
    names = {column.name for column in found.columns}
    criteo = names >= {*CRITEO_DENSE, *CRITEO_FEATURES}
    label = _label(found)
    roles = [
        _criteo(column, found) if criteo else _role(column, found)
        for column in found.columns
        if column.name != label.column
    ]
    features = tuple(_unique(role for role in roles if isinstance(role, FeatureDraft)))
    if not features:
        what = f"{found.files[0]}: no column is categorical, so there are no embeddings to train"
        raise InputError(what, hint=f"Its columns: {', '.join(sorted(names)[:40])}.")
    return Draft(
        kind="criteo" if criteo and label.threshold is None and _is_criteo_file(found) else "tabular",
        label=label,
        dense=tuple(role for role in roles if isinstance(role, DenseDraft)),
        features=features,
        left_out=tuple(role for role in roles if isinstance(role, LeftOut)),
        words=tuple(dict.fromkeys(word for column in found.columns for word in column.words)),
    )


def _is_criteo_file(found: Survey) -> bool:
    """Whether the reader of Criteo's own files can read these: text, these columns in this order, plain numbers."""
    names = ["label", *CRITEO_DENSE, *CRITEO_FEATURES]
    numbers = all(column.kind == "numbers" and not column.words for column in found.columns[: 1 + len(CRITEO_DENSE)])
    return [column.name for column in found.columns] == names and numbers and found.columns[0].type == "text"


def _label(found: Survey) -> Label:
    """The column of 0 and 1 with the best name; a rating; else any column of 0 and 1."""
    by_name = {column.name.lower(): column for column in reversed(found.columns)}
    binary = [column for column in found.columns if _is_binary(column)]
    named = [by_name[name] for name in LABELS if name in by_name and _is_binary(by_name[name])]
    if named:
        return _binary_label(named[0])
    ratings = [by_name[name] for name in (*LABELS, *RATINGS) if name in by_name and _few(by_name[name])]
    if ratings:
        return _rating_label(ratings[0])
    if binary:
        others = [column.name for column in binary[1:]]
        also = f", and so do {', '.join(others[:5])}" if others else ""
        return _binary_label(binary[0], look=f"taken for the label because it holds 0 and 1{also}")
    gaps = [by_name[name] for name in (*LABELS, *RATINGS) if name in by_name and by_name[name].missing]
    if gaps:
        what = f"column {gaps[0].name} has no value in {gaps[0].missing:,} of {found.rows:,} sampled rows"
        raise InputError(f"{found.files[0]}: {what}, so it cannot be the label", hint="Take these rows out.")
    columns = ", ".join(column.name for column in found.columns[:40])
    hint = f"Training needs a column called label, of 0 and 1. The columns are {columns}."
    raise InputError(f"{found.files[0]}: no column can be the label", hint=hint)


def _is_binary(column: ColumnFacts) -> bool:
    numbers = column.numbers
    return (
        numbers is not None and column.missing == 0 and {numbers.minimum, numbers.maximum} <= {0, 1} and numbers.whole
    )


def _few(column: ColumnFacts) -> bool:
    return column.numbers is not None and column.missing == 0 and column.distinct > 1 and column.numbers.few is not None


def _binary_label(column: ColumnFacts, look: str = "") -> Label:
    assert column.numbers is not None
    rate = column.numbers.mean
    if rate in (0, 1):
        look = f"all sampled rows are {rate:.0f}"
    return Label(column.name, None, rate, look)


def _rating_label(column: ColumnFacts) -> Label:
    """A rating counts as positive from the value on that splits the rows most evenly."""
    assert column.numbers is not None and column.numbers.few is not None
    values = column.numbers.few
    total = sum(count for _, count in values)
    rates = {value: sum(n for other, n in values if other >= value) / total for value, _ in values[1:]}
    threshold = min(rates, key=lambda value: abs(rates[value] - 0.5))
    return Label(
        column.name, threshold, rates[threshold], f"positive from {threshold:g} on; values are {_range(column)}"
    )


Role = DenseDraft | FeatureDraft | LeftOut


def _criteo(column: ColumnFacts, found: Survey) -> Role:
    """By name. The transform is that of the published results: log1p of the counts, negative ones taken for 0."""
    if column.name in CRITEO_DENSE:
        return DenseDraft(column.name, "log1p", column.numbers, _dense_note(column, found))
    if column.name in CRITEO_FEATURES:
        return _feature(column, found, rare=False)
    return LeftOut(column.name, "not of Criteo's layout")


def _role(column: ColumnFacts, found: Survey) -> Role:
    if why := _useless(column, found):
        return LeftOut(column.name, why)
    numbers, named_id = column.numbers, IDENTIFIER.search(column.name) is not None
    if TIME.search(column.name) and (column.kind == "text" or (numbers and numbers.minimum >= EARLIEST_TIME)):
        why = "a point in time: later rows have values that training never met"
        return LeftOut(column.name, why, look=True)
    if _is_row_id(column, found, named_id=named_id):
        return LeftOut(column.name, "an id of rows: no value comes twice", look=named_id)
    if numbers is not None and (not numbers.whole or _is_amount(column, numbers)):
        return _dense(column, numbers, found)
    if numbers is None or not numbers.exact or named_id:
        return _feature(column, found)
    if column.distinct <= FEW_NUMBERS:
        look = "" if column.distinct == 2 else f"a code? As an amount it belongs under `dense`: {_range(column)}"
        return _feature(column, found, look)
    return _dense(column, numbers, found, "an amount? As a code it belongs under `features`")


def _useless(column: ColumnFacts, found: Survey) -> str:
    """Why a column says nothing; "" where it may."""
    if not column.name.strip():
        return "it has no name"
    if column.kind == "other":
        return f"holds {column.type}, which is neither numbers nor text"
    if column.missing == found.rows:
        return "empty"
    fraction = column.numbers is not None and not column.numbers.whole
    if column.distinct == 1 and (column.missing == 0 or fraction) and found.rows > 1:
        return "constant: one value in all sampled rows"
    return ""


def _is_amount(column: ColumnFacts, numbers: Numbers) -> bool:
    """Whether numbers of this type are never categories: decimals, and floats that hold no exact whole numbers."""
    if column.type.startswith(("text", "int", "uint", "bool")):
        return False
    return column.type.startswith("decimal") or max(-numbers.minimum, numbers.maximum) > 2**53


def _is_row_id(column: ColumnFacts, found: Survey, *, named_id: bool) -> bool:
    if column.kind == "list" or column.missing or column.distinct < found.rows or found.rows < ENOUGH_ROWS:
        return False
    numbers = column.numbers
    if numbers is None:
        return True
    counts_up = numbers.maximum - numbers.minimum == found.rows - 1
    return numbers.whole and (named_id or counts_up)


def _dense(column: ColumnFacts, numbers: Numbers, found: Survey, look: str = "") -> DenseDraft:
    """log1p for heavy tails of what is never negative; standardize for what is not near 0 and 1 already."""
    note = _dense_note(column, found)
    spread = max(numbers.std, abs(numbers.mean))
    if numbers.minimum >= 0 and numbers.maximum > max(HEAVY_TAIL * numbers.mean, HEAVY_TAIL):
        return DenseDraft(column.name, "log1p", numbers, note, look)
    if numbers.std > 0 and not 0.1 <= spread <= 3:
        return DenseDraft(column.name, "standardize", numbers, note, look)
    return DenseDraft(column.name, "none", numbers, note, look)


def _feature(column: ColumnFacts, found: Survey, look: str = "", *, rare: bool = True) -> FeatureDraft:
    """Rows for the values that all files are estimated to hold, and two reserved ones. rare: say if most come once."""
    vocabulary = column.estimate <= VOCABULARY
    wanted = round_up(column.estimate * (1.0 if found.whole else HEADROOM) + 2)
    rows = min(wanted, LARGEST_TABLE)
    many = f"{wanted:,} rows would hold all values" if wanted > rows else ""
    once = "most values come once: they teach little" if rare and _mostly_once(column, found) else ""
    empty = "empty in the sample" if column.distinct == 0 else ""
    blank = "parted at commas or blanks, which may be plain text" if column.separator in (",", " ") else ""
    looks = "; ".join(reason for reason in (look, empty, blank, many, once) if reason)
    note = _feature_note(column, found)
    return FeatureDraft(
        _name(column.name), column.name, "vocabulary" if vocabulary else "hash", column.separator, rows, note, looks
    )


def _name(column: str) -> str:
    """The column's name, or what a recipe allows of it."""
    plain = "".join(char if char.isalpha() or char.isdecimal() or char in "_-" else "_" for char in column)
    return column if plain == column.lstrip("-")[:100] else plain.strip("_-")[:100] or "feature"


def _mostly_once(column: ColumnFacts, found: Survey) -> bool:
    return column.kind != "list" and column.distinct > 0.8 * (found.rows - column.missing) and found.rows >= ENOUGH_ROWS


def _feature_note(column: ColumnFacts, found: Survey) -> str:
    about = "" if found.whole else "about "
    parts = [f"{about}{column.estimate:,} values"]
    if column.kind == "list":
        parts.append(f"{column.mean_values:.1f} to a row, at most {column.longest:,}")
    return ", ".join([*parts, *_missing(column, found)])


def _dense_note(column: ColumnFacts, found: Survey) -> str:
    return ", ".join([_range(column), *_missing(column, found)])


def _missing(column: ColumnFacts, found: Survey) -> list[str]:
    share = column.missing / found.rows
    return [f"{share:.1%} missing" if share >= 0.0005 else "few missing"] if share else []


def _range(column: ColumnFacts) -> str:
    numbers = column.numbers
    return "empty in the sample" if numbers is None else f"{numbers.minimum:,g} to {numbers.maximum:,g}"


def _unique(features: Iterable[FeatureDraft]) -> Iterable[FeatureDraft]:
    """The features, under different names."""
    taken: set[str] = set()
    for feature in features:
        name, number = feature.name, 2
        while name in taken:
            name, number = f"{feature.name[:96]}_{number}", number + 1
        taken.add(name)
        yield FeatureDraft(**{**feature.__dict__, "name": name})


def round_up(count: float) -> int:
    """To two significant digits: 1,234 -> 1,300; exactly below 100."""
    whole = max(int(-(-count // 1)), 3)
    unit = int(10 ** max(len(str(whole)) - 2, 0))
    return -(-whole // unit) * unit
