"""Settings that differ from their default and are never read: each is an error, so that no one trusts it."""

from collections.abc import Callable, Iterator

from dlrmx.errors import Problem
from dlrmx.recipe.schema import Criteo, Feature, Recipe, Settings, Synthetic, TableSharding, Tabular, WarmupHoldDecay

_REMOVE = "take it out"
_NUMBERS = {"modulo", "identity"}


def is_text(data: Tabular) -> bool:
    """Whether the files are known to be text: CSV or TSV by `format` or by all their names."""
    if data.format != "auto":
        return data.format != "parquet"
    return all(name.removesuffix(".gz").lower().endswith((".csv", ".tsv")) for name in data.files)


def _changed(settings: Settings, name: str) -> bool:
    """Whether a setting differs from its default."""
    return bool(getattr(settings, name) != type(settings).model_fields[name].get_default(call_default_factory=True))


def _unread(key: str, why: str, hint: str = _REMOVE) -> Problem:
    return Problem(f"has no effect: {why}", key=key, hint=hint)


def _optimizers(recipe: Recipe) -> Iterator[Problem]:
    dense, sparse = recipe.optimizer.dense, recipe.optimizer.sparse
    if dense.kind == "sgd" and _changed(dense, "eps"):
        yield _unread("optimizer.dense.eps", "sgd has none")
    if dense.kind != "adamw" and _changed(dense, "weight_decay"):
        yield _unread("optimizer.dense.weight_decay", f"{dense.kind} has none", "use `kind: adamw`, or take it out")
    if sparse.kind == "sgd" and _changed(sparse, "eps"):
        yield _unread("optimizer.sparse.eps", "sgd has none")
    schedule = recipe.optimizer.schedule
    if isinstance(schedule, WarmupHoldDecay) and schedule.decay == 0:
        for setting in ("power", "floor"):
            if _changed(schedule, setting):
                yield _unread(f"optimizer.schedule.{setting}", "decay is 0, so the rate never falls")


def _dense_columns(recipe: Recipe) -> Iterator[Problem]:
    for name, dense in recipe.dense.items():
        for setting in ("mean", "std"):
            if dense.transform != "standardize" and _changed(dense, setting):
                why = f"the transform is {dense.transform}"
                yield _unread(f"dense.{name}.{setting}", why, "set `transform: standardize`, or take it out")


def _synthetic_data(recipe: Recipe) -> Iterator[Problem]:
    if not isinstance(recipe.data, Synthetic):
        return
    why = "synthetic data is drawn, not read"
    if recipe.data.split.on is not None:
        yield _unread("data.split.on", why)
    if not recipe.dense and _changed(recipe.data.teacher, "dense"):
        yield _unread("data.teacher.dense", "there are no dense columns")
    for name, dense in recipe.dense.items():
        for setting in ("transform", "missing"):
            if _changed(dense, setting):
                yield _unread(f"dense.{name}.{setting}", why)


def _split(recipe: Recipe) -> Iterator[Problem]:
    split = recipe.data.split
    if split.by != "hash" and split.on is not None and not isinstance(recipe.data, Synthetic):
        yield _unread("data.split.on", f"rows are split by {split.by}", "use `by: hash`, or take it out")
    if split.first != "validation" and (split.by == "hash" or not (split.validation and split.test)):
        why = "a hash decides" if split.by == "hash" else "there is only one of the two"
        yield _unread("data.split.first", why)


def _features(recipe: Recipe) -> Iterator[Problem]:
    """A setting inherited from `defaults` is told only when no feature that inherits it reads it."""
    shared = recipe.defaults.feature
    told: dict[str, Problem] = {}
    read: set[str] = set()
    for name, feature in recipe.features.items():
        reasons = dict(_feature_reasons(recipe, name, feature))
        for setting, value in shared.items():
            inherits = getattr(feature, setting) == value
            if inherits and setting not in reasons:
                read.add(setting)
        for setting, why in reasons.items():
            if setting in shared and getattr(feature, setting) == shared[setting]:
                told.setdefault(setting, _unread(f"defaults.feature.{setting}", why))
            else:
                yield _unread(f"features.{name}.{setting}", why)
    yield from (problem for setting, problem in told.items() if setting not in read)


def _feature_reasons(recipe: Recipe, name: str, feature: Feature) -> Iterator[tuple[str, str]]:
    """(setting, why nothing reads it) of one feature."""
    data = recipe.data
    if isinstance(data, Synthetic):
        if feature.column != name:
            yield "column", "synthetic data has no columns"
        for setting in ("ids", "min_count", "separator", "max_ids", "missing", "expand"):
            if _changed(feature, setting):
                yield setting, "synthetic data is drawn, not read"
        return
    if feature.ids != "vocabulary" and _changed(feature, "min_count"):
        yield "min_count", f"ids are made by {feature.ids}, not by a vocabulary"
    if isinstance(data, Criteo):
        for setting in ("separator", "max_ids", "weights"):
            if _changed(feature, setting):
                yield setting, "a field of Criteo's layout is one value"
        return
    if _changed(feature, "expand"):
        yield "expand", "it is for Criteo's layout, where each field is one value"
    if feature.max_ids is not None and feature.separator is None and is_text(data):
        yield "max_ids", "without `separator` a field of a text file is one value"


def _tables(recipe: Recipe) -> Iterator[Problem]:
    kinds: dict[str, set[str]] = {name: set() for name in recipe.tables}
    for feature in recipe.features.values():
        kinds.setdefault(feature.table, set()).add(feature.ids)
    for name, table in recipe.tables.items():
        numbers = not isinstance(recipe.data, Synthetic) and kinds[name] <= _NUMBERS
        reads = isinstance(recipe.data, Criteo) or numbers
        if _changed(table, "bad_ids") and not reads:
            why = "synthetic data is drawn, not read" if isinstance(recipe.data, Synthetic) else "every value has an id"
            yield _unread(f"tables.{name}.bad_ids", why, "use `ids: modulo` or `identity`, or take it out")


def _evaluation(recipe: Recipe) -> Iterator[Problem]:
    evaluate = recipe.train.evaluate
    if evaluate.every is None and _changed(evaluate, "on"):
        hint = "add `every`, or name the split in `at_end`"
        yield _unread("train.evaluate.on", "there are no evaluations on the way", hint)


def _checkpoints(recipe: Recipe) -> Iterator[Problem]:
    if recipe.checkpoint.save:
        return
    for setting in ("every", "keep", "best", "on_error"):
        if _changed(recipe.checkpoint, setting):
            yield _unread(f"checkpoint.{setting}", "checkpoint.save is false")


def _unread_constraints(key: str, table: TableSharding) -> Iterator[Problem]:
    """Constraints of one table that its other constraints leave nothing to say."""
    types = table.types or ["row_wise"]
    named = f"its types are {', '.join(types)}" if table.types else "no types are named"
    if table == TableSharding():
        yield _unread(key, "it constrains nothing")
    if table.slices is not None and not {"column_wise", "grid"} & set(types):
        yield _unread(f"{key}.slices", named, "add column_wise or grid to the types, or take it out")
    if table.route is not None and not {"row_wise", "table_row_wise", "grid"} & set(types):
        yield _unread(f"{key}.route", named, "add a type that cuts rows, or take it out")
    if table.tier not in (None, "hbm") and types == ["data_parallel"]:
        yield _unread(f"{key}.tier", "replicas lie in device memory", "allow another type, or take it out")
    if table.cache_ratio is not None and table.tier != "uvm_caching":
        yield _unread(f"{key}.cache_ratio", "its tier is not uvm_caching", "add tier: uvm_caching, or take it out")


def _exchange(recipe: Recipe) -> Iterator[Problem]:
    exchange, hint = recipe.exchange, "find thresholds less often, or take it out"
    for name in ("forward", "backward") if exchange.chunks > 1 else ():
        threshold = getattr(exchange.threshold, name)
        if threshold is not None and threshold.sparsity > 0 and threshold.every == 1:
            yield _unread("exchange.chunks", f"threshold.{name} is found anew in each step, in its whole batch", hint)
    constraints = recipe.sharding.tables
    if all(name in constraints and constraints[name].types == ["data_parallel"] for name in recipe.tables):
        why, hint = "all tables are data_parallel, and no vectors travel", "allow another type, or take it out"
        for setting in ("forward", "backward", "chunks"):
            if _changed(exchange, setting):
                yield _unread(f"exchange.{setting}", why, hint)
        for name in ("forward", "backward"):
            if getattr(exchange.threshold, name) is not None:
                yield _unread(f"exchange.threshold.{name}", why, hint)


def _sharding(recipe: Recipe) -> Iterator[Problem]:
    sharding = recipe.sharding
    for name, table in sharding.tables.items():
        yield from _unread_constraints(f"sharding.tables.{name}", table)
    if sharding.split_sums and recipe.optimizer.sparse.kind != "rowwise_adagrad":
        yield _unread("sharding.split_sums", f"{recipe.optimizer.sparse.kind} keeps no row sums")
    if sharding.plan == "auto":
        return
    for setting in ("tables", "reserve", "split_sums"):
        if _changed(sharding, setting):
            yield _unread(
                f"sharding.{setting}", "the plan file says where each table goes", f"{_REMOVE}, or use `plan: auto`"
            )


UNREAD: tuple[tuple[tuple[str, ...], Callable[[Recipe], Iterator[Problem]]], ...] = (
    (("optimizer",), _optimizers),
    (("dense",), _dense_columns),
    (("data", "dense"), _synthetic_data),
    (("data",), _split),
    (("data", "features", "defaults"), _features),
    (("data", "features", "tables"), _tables),
    (("train",), _evaluation),
    (("checkpoint",), _checkpoints),
    (("sharding",), _sharding),
    (("exchange", "sharding", "tables"), _exchange),
)
