"""A draft as the text of a recipe: what was found is a comment, and what should be looked at is marked `# look:`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dlrmx.data.draft import DenseDraft, Draft, FeatureDraft, Label
from dlrmx.data.survey import Survey
from dlrmx.recipe.yaml_file import scalar

LOOK = "# look: "
DIM = 16
# A step every so many rows: some 200 steps an epoch, within these bounds.
STEPS = 200
BATCH = (32, 8_192)
# Of fewer rows more validate and test.
SMALL = 100_000
PLAIN = re.compile(r"[A-Za-z_./][\w./*-]*", re.ASCII)


def recipe_text(found: Survey, drafted: Draft, files: Sequence[str]) -> str:
    """The recipe that `drafted` amounts to; `files` are the patterns as its file is to name them."""
    body = [
        "dlrmx: 1",
        "data:",
        *_indented(_data(found, drafted, files)),
        *(["dense:", *_indented(map(_dense, drafted.dense))] if drafted.dense else []),
        "defaults:",
        f"  table: {{dim: {DIM}}}",
        "features:",
        *_indented(map(_feature, drafted.features)),
        "tables: # of the rows one is for missing values and, in a vocabulary, one for unseen ones",
        *_indented(f"{_text(feature.name)}: {{rows: {feature.rows:_}}}" for feature in drafted.features),
        *_left_out(drafted),
        *_training(found, drafted),
    ]
    return "\n".join([*_header(found, drafted, looks=sum(LOOK in line for line in body)), *body]) + "\n"


def _header(found: Survey, drafted: Draft, *, looks: int) -> list[str]:
    files = f"{len(found.files):,} file{'s' if len(found.files) > 1 else ''}"
    rows = f"{found.rows:,} rows, all that {files} hold{'s' if len(found.files) == 1 else ''}"
    if not found.whole:
        begins = files if found.sampled_files == len(found.files) else f"{found.sampled_files} of {files}"
        rows = f"the first {found.rows:,} rows of {begins}, about {found.rows_in_all:,} rows in all"
    marked = f"{looks} line{'' if looks == 1 else 's'} marked so: guesses about what only you know"
    return [
        f"# Drafted by `dlrmx init` from {rows}.",
        "#",
        "#   command   dlrmx check FILE, dlrmx plan FILE, then dlrmx train FILE",
        f"#   look      {marked if looks else 'nothing had to be guessed that only you know'}",
    ]


def _data(found: Survey, drafted: Draft, files: Sequence[str]) -> Iterator[str]:
    if drafted.kind == "criteo":
        yield f"kind: criteo{_comment(f'{drafted.label.positive_rate:.2%} positive', drafted.label.look)}"
    else:
        yield "kind: tabular"
    yield f"files: {_flow(list(files))}"
    if drafted.kind == "tabular":
        yield from _tabular(found, drafted)
    if found.bad_rows:
        yield f"bad_rows: skip{_comment(f'the first: {found.first_bad}', f'{found.bad_rows:,} sampled rows are bad')}"
    share = 0.1 if found.rows_in_all < SMALL else 0.05
    yield f"split: {{validation: {share}, test: {share}}}"


def _tabular(found: Survey, drafted: Draft) -> Iterator[str]:
    if found.format is not None:
        yield f"format: {found.format}"
    yield _label(drafted.label)
    if drafted.words:
        yield f"missing: {_flow(['', 'NA', *drafted.words])}"


def _label(label: Label) -> str:
    settings = {"column": label.column} | ({} if label.threshold is None else {"threshold": label.threshold})
    return f"label: {_flow(settings)}{_comment(f'{label.positive_rate:.2%} positive', label.look)}"


def _dense(column: DenseDraft) -> str:
    settings: dict[str, object] = {} if column.transform == "none" else {"transform": column.transform}
    if column.transform == "standardize":
        assert column.numbers is not None
        settings |= {"mean": _short(column.numbers.mean), "std": _short(column.numbers.std)}
    return f"{_text(column.column)}: {_flow(settings)}{_comment(column.note, column.look)}"


def _feature(feature: FeatureDraft) -> str:
    settings: dict[str, object] = {} if feature.column == feature.name else {"column": feature.column}
    if feature.ids != "hash":
        settings["ids"] = feature.ids
    if feature.separator is not None:
        settings["separator"] = feature.separator
    return f"{_text(feature.name)}: {_flow(settings)}{_comment(feature.note, feature.look)}"


def _left_out(drafted: Draft) -> Iterator[str]:
    if drafted.left_out:
        yield "# Left out:"
    for column in drafted.left_out:
        mark = LOOK if column.look else "#   "
        yield f"{mark}{_text(column.column)}: {_printable(column.why)}"


def _training(found: Survey, drafted: Draft) -> Iterator[str]:
    """Widths and rates that are rarely far off. Without dense columns one feature alone has no dot product."""
    if drafted.dense:
        yield f"model: {{kind: dlrm, bottom: [64, {DIM}], top: [128, 64, 1]}}"
    else:
        yield f"model: {{kind: dcnv2, bottom: [{DIM}], top: [64, 1], cross_layers: 2, cross_rank: 64}}"
    batch = BATCH[0]
    while batch < BATCH[1] and 2 * batch * STEPS <= found.rows_in_all:
        batch *= 2
    yield "optimizer:"
    yield "  dense: {kind: adagrad, lr: 0.02}"
    yield "  sparse: {kind: rowwise_adagrad, lr: 0.05}"
    yield f"train: {{batch: {batch:_}, stop: {{epochs: 1}}}}"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _comment(note: str, look: str) -> str:
    text = f"{LOOK}{look} ({note})" if look else f"# {note}"
    return f" {_printable(text)}"


def _short(value: float) -> float:
    """Six digits: more would only look exact."""
    return float(f"{value:.6g}")


def _flow(value: object) -> str:
    """A value on one line, as YAML that reads back to it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(key)}: {_flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _text(value) if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def _text(text: str) -> str:
    """A text as a scalar: plain, or in double quotes with what cannot be seen escaped."""
    if PLAIN.fullmatch(text) and scalar(text) == text:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in quoted)


def _printable(text: str) -> str:
    """A comment ends with its line."""
    return "".join(char if char.isprintable() else " " for char in text)
