"""Rules that span several settings: what would fail, or mean something else than it says, once workers run.

Each rule names the sections it reads and is skipped while one of them is broken itself, so that all problems of a
file can be told at once. Settings that nothing reads are in unread.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dlrmx.errors import Problem
from dlrmx.recipe.names import near_miss
from dlrmx.recipe.schema import Criteo, Dlrm, Recipe, Synthetic, Table, Tabular
from dlrmx.recipe.unread import UNREAD, is_text

Check = Callable[[Recipe], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A check and the recipe's sections that it reads."""

    sections: tuple[str, ...]
    check: Check


def check_rules(recipe: Recipe, broken: frozenset[str] = frozenset()) -> list[Problem]:
    """All problems that span settings; rules that read a broken section are left out."""
    return [problem for rule in RULES if broken.isdisjoint(rule.sections) for problem in rule.check(recipe)]


def _tables_exist(recipe: Recipe) -> Iterator[Problem]:
    for name, feature in recipe.features.items():
        if feature.table not in recipe.tables:
            what = f'there is no table "{feature.table}"'
            yield Problem(what, key=f"features.{name}.table", hint=near_miss(feature.table, recipe.tables))


def _tables_are_used(recipe: Recipe) -> Iterator[Problem]:
    used = {feature.table for feature in recipe.features.values()}
    for name in recipe.tables:
        if name not in used:
            hint = f"take it out, or give a feature `table: {name}`"
            yield Problem("no feature uses this table", key=f"tables.{name}", hint=hint)


def _tables_hold_reserved_rows(recipe: Recipe) -> Iterator[Problem]:
    """A row for missing values, in a vocabulary one for unseen values too, and one for the rest."""
    if isinstance(recipe.data, Synthetic):
        return
    for name, feature in recipe.features.items():
        table = recipe.tables.get(feature.table)
        reserves = feature.missing == "reserve" or feature.ids in ("modulo", "identity")
        needed = 3 if feature.ids == "vocabulary" else 2 if reserves else 1
        if table is not None and table.rows < needed:
            reserved = f"feature {name} needs {needed}: {needed - 1} reserved for missing or unknown values"
            yield Problem(f"{table.rows} rows are too few; {reserved}", key=f"tables.{feature.table}.rows")


def _widths_fit(recipe: Recipe) -> Iterator[Problem]:
    model = recipe.model
    if model.top[-1] != 1:
        yield Problem(f"must end in 1, the logit, not in {model.top[-1]}", key="model.top")
    if not isinstance(model, Dlrm) or model.interaction != "dot":
        return
    dims = {name: table.dim for name, table in _used(recipe).items()}
    if len(set(dims.values())) > 1:
        listed = ", ".join(f"{name} {dim}" for name, dim in dims.items())
        hint = "give all tables one dim, or use `interaction: cat` or `kind: dcnv2`"
        yield Problem(
            f"dot products need one embedding dim; the tables have {listed}", key="model.interaction", hint=hint
        )
    elif dims and recipe.dense and model.bottom[-1] not in dims.values():
        dim = next(iter(dims.values()))
        what = f"must end in the tables' dim for dot products: {dim}, not {model.bottom[-1]}"
        yield Problem(what, key="model.bottom", hint=f"write {[*model.bottom[:-1], dim]}")


def _used(recipe: Recipe) -> dict[str, Table]:
    used = {feature.table for feature in recipe.features.values()}
    return {name: table for name, table in recipe.tables.items() if name in used}


def _splits_leave_rows(recipe: Recipe) -> Iterator[Problem]:
    split = recipe.data.split
    if split.by != "files" and split.fraction("validation") + split.fraction("test") >= 1:
        what = f"validation {split.validation} + test {split.test} leave no rows to train on"
        yield Problem(what, key="data.split", hint="their sum must be less than 1")


def _evaluated_splits_have_rows(recipe: Recipe) -> Iterator[Problem]:
    split, evaluate = recipe.data.split, recipe.train.evaluate
    if evaluate.every is not None and not split.has_rows(evaluate.on):
        what = f"evaluates on {evaluate.on}, but data.split.{evaluate.on} is 0"
        yield Problem(what, key="train.evaluate.on", hint="evaluate on the other split, or give this one rows")
    if evaluate.at_end is not None and not split.has_rows(evaluate.at_end):
        what = f"evaluates on {evaluate.at_end}, but data.split.{evaluate.at_end} is 0"
        yield Problem(
            what, key="train.evaluate.at_end", hint="write at_end: null for no evaluation, or give the split rows"
        )


def _synthetic_rows_are_in_no_file(recipe: Recipe) -> Iterator[Problem]:
    if isinstance(recipe.data, Synthetic) and recipe.data.split.by == "files":
        yield Problem("synthetic data has no files to split by", key="data.split.by", hint="use hash or fraction")


def _pooling_names_features(recipe: Recipe) -> Iterator[Problem]:
    if not isinstance(recipe.data, Synthetic):
        return
    for name in recipe.data.pooling:
        if name not in recipe.features:
            what, hint = f'there is no feature "{name}"', near_miss(name, recipe.features)
            yield Problem(what, key=f"data.pooling.{name}", hint=hint)


def _pooling_fits(recipe: Recipe) -> Iterator[Problem]:
    if not isinstance(recipe.data, Synthetic):
        return
    for name, pooling in recipe.data.pooling.items():
        if pooling.max < pooling.mean:
            what = f"must be at least the mean ({pooling.mean:g}), not {pooling.max}"
            yield Problem(what, key=f"data.pooling.{name}.max")


def _an_epoch_has_a_step(recipe: Recipe) -> Iterator[Problem]:
    data = recipe.data
    if not isinstance(data, Synthetic) or data.tail == "keep" or data.split.by == "files":
        return
    expected_rows = data.rows * (1 - data.split.fraction("validation") - data.split.fraction("test"))
    if recipe.train.batch > expected_rows:
        train = f"the training split's {expected_rows:.0f}"
        what = f"{recipe.train.batch} rows are more than {train}, so `tail: drop` leaves none"
        yield Problem(what, key="train.batch", hint="a smaller batch, more data.rows, or `data.tail: keep`")


def _label_stays_out(recipe: Recipe) -> Iterator[Problem]:
    if not isinstance(recipe.data, Tabular):
        return
    label = recipe.data.label.column
    columns = {f"dense.{name}": name for name in recipe.dense}
    for name, feature in recipe.features.items():
        columns[f"features.{name}.column"] = feature.column
        columns[f"features.{name}.weights"] = feature.weights or ""
    for key, column in columns.items():
        if column == label:
            yield Problem(
                f'"{label}" is the label: a model that reads it learns nothing else', key=key, hint="take it out"
            )


def _weights_have_values(recipe: Recipe) -> Iterator[Problem]:
    """In text files a field without a separator is one value; Parquet columns may be lists."""
    data = recipe.data
    if not isinstance(data, Tabular) or not is_text(data):
        return
    for name, feature in recipe.features.items():
        if feature.weights is not None and feature.separator is None:
            what = "weights need several values per field, and text files have them by `separator` only"
            yield Problem(what, key=f"features.{name}.weights", hint="add `separator`, or take `weights` out")


def _shared_tables_agree(recipe: Recipe) -> Iterator[Problem]:
    """Features of one table share its ids: one way to make them, one vocabulary."""
    if isinstance(recipe.data, Synthetic):
        return
    first: dict[str, str] = {}
    for name, feature in recipe.features.items():
        other = first.setdefault(feature.table, name)
        for setting in ("ids", "min_count"):
            own, others = getattr(feature, setting), getattr(recipe.features[other], setting)
            if own != others:
                what = f"is {own}, but {others} in feature {other} of the same table, whose ids they share"
                hint = "give both the same, or tables of their own"
                yield Problem(what, key=f"features.{name}.{setting}", hint=hint)


def _criteo_columns(recipe: Recipe) -> Iterator[Problem]:
    """The layout names the columns: I1 to I13 are numbers, C1 to C26 are categories."""
    if not isinstance(recipe.data, Criteo):
        return
    integers, categories = [f"I{n}" for n in range(1, 14)], [f"C{n}" for n in range(1, 27)]
    for name in recipe.dense:
        if name not in integers:
            yield Problem(f'Criteo has no integer column "{name}"', key=f"dense.{name}", hint="they are I1 to I13")
    columns = {f"features.{name}.column": feature.column for name, feature in recipe.features.items()}
    if recipe.data.split.on is not None:
        columns["data.split.on"] = recipe.data.split.on
    for name, feature in recipe.features.items():
        if feature.expand > 1 and feature.missing == "drop":
            what, hint = "an empty field has no id to expand", "use `missing: reserve`"
            yield Problem(what, key=f"features.{name}.expand", hint=hint)
    for key, column in columns.items():
        if column not in categories:
            yield Problem(f'Criteo has no category column "{column}"', key=key, hint="they are C1 to C26")


def _standardize_is_complete(recipe: Recipe) -> Iterator[Problem]:
    for name, dense in recipe.dense.items():
        if dense.transform == "standardize" and (dense.mean is None or dense.std is None):
            missing = " and ".join(key for key in ("mean", "std") if getattr(dense, key) is None)
            hint = "they are written down, so that training and later data are treated alike"
            yield Problem(f"standardize needs {missing}", key=f"dense.{name}", hint=hint)


def _sharded_tables_exist(recipe: Recipe) -> Iterator[Problem]:
    for name in recipe.sharding.tables:
        if name not in recipe.tables:
            what, hint = f'there is no table "{name}"', near_miss(name, recipe.tables)
            yield Problem(what, key=f"sharding.tables.{name}", hint=hint)


def _slices_fit(recipe: Recipe) -> Iterator[Problem]:
    """fbgemm wants each slice's width to be a multiple of 4."""
    for name, sharding in recipe.sharding.tables.items():
        table = recipe.tables.get(name)
        if table is None:
            continue
        most = table.dim // 4
        types = set(sharding.types or ())
        if types and types <= {"column_wise", "grid"} and most < 2:
            what = f"column slices need a dim of at least 8, table {name} has {table.dim}"
            yield Problem(what, key=f"sharding.tables.{name}.types")
        elif types & {"column_wise", "grid"} and sharding.slices is not None and sharding.slices > most:
            what = f"dim {table.dim} has at most {most} slices of 4 columns, not {sharding.slices}"
            yield Problem(what, key=f"sharding.tables.{name}.slices")


def _best_is_measured(recipe: Recipe) -> Iterator[Problem]:
    best, evaluate = recipe.checkpoint.best, recipe.train.evaluate
    if best is None:
        return
    if evaluate.every is None:
        hint = "add train.evaluate.every, or take `best` out"
        yield Problem(
            f"{best.metric} is never measured: train.evaluate.every is not set", key="checkpoint.best", hint=hint
        )
    elif evaluate.on != "validation":
        hint = "set train.evaluate.on: validation"
        yield Problem(
            f"{best.metric} is never measured: evaluations are on {evaluate.on}", key="checkpoint.best", hint=hint
        )


def _thresholds_have_formats(recipe: Recipe) -> Iterator[Problem]:
    """Entries that are sent one by one have no vector to share a scale with."""
    exchange, hint = recipe.exchange, "use bf16, or take the threshold out"
    vectors = exchange.threshold.forward is not None or exchange.threshold.backward is not None
    thresholded = {"forward": vectors, "backward": vectors, "dense": exchange.threshold.dense is not None}
    for name, single in thresholded.items():
        if single and (format := getattr(exchange, name)) in ("int8", "int4", "sign"):
            what = f"{format} is for whole vectors, and exchange.threshold sends single numbers"
            yield Problem(what, key=f"exchange.{name}", hint=hint)


RULES = (
    Rule(("features", "tables"), _tables_exist),
    Rule(("features", "tables"), _tables_are_used),
    Rule(("data", "features", "tables"), _tables_hold_reserved_rows),
    Rule(("model", "dense", "features", "tables"), _widths_fit),
    Rule(("data",), _splits_leave_rows),
    Rule(("data", "train"), _evaluated_splits_have_rows),
    Rule(("data",), _synthetic_rows_are_in_no_file),
    Rule(("data", "features"), _pooling_names_features),
    Rule(("data",), _pooling_fits),
    Rule(("data", "train"), _an_epoch_has_a_step),
    Rule(("data", "dense", "features"), _label_stays_out),
    Rule(("data", "features"), _weights_have_values),
    Rule(("data", "dense", "features"), _criteo_columns),
    Rule(("data", "features"), _shared_tables_agree),
    Rule(("dense",), _standardize_is_complete),
    Rule(("sharding", "tables"), _sharded_tables_exist),
    Rule(("sharding", "tables"), _slices_fit),
    Rule(("checkpoint", "train"), _best_is_measured),
    Rule(("exchange",), _thresholds_have_formats),
    *(Rule(sections, check) for sections, check in UNREAD),
)
