"""Whether a recipe fits prepared data: what would stop a run or mislead it, and what is worth knowing."""

from collections.abc import Iterator
from dataclasses import dataclass

from dlrmx.data.manifest import Manifest
from dlrmx.recipe.schema import Recipe

# A table that so small a part of was met is told.
MOSTLY_UNUSED = 0.1
# But not that of a table of so few rows.
SMALL_TABLE = 1000


@dataclass(frozen=True)
class Finding:
    """`kind`: "ok", "note", or "no" where a run of the recipe on these data would fail or train on nonsense."""

    kind: str
    what: str


def findings(recipe: Recipe, manifest: Manifest) -> list[Finding]:
    """All there is to say: of columns and tables, of splits, of the batch."""
    wrong = differences(recipe, manifest)
    if wrong:
        return [Finding("no", what) for what in wrong]
    held = f"features ({len(recipe.features)}), tables ({len(recipe.tables)}) and dense columns ({len(recipe.dense)})"
    return [
        Finding("ok", f"{held} are as prepared, every id is below its table's rows"),
        *_batches(recipe, manifest),
        *_evaluations(recipe, manifest),
        *_tables(recipe, manifest),
    ]


def differences(recipe: Recipe, manifest: Manifest) -> list[str]:
    """In what the data were prepared for another recipe: columns, features, tables; ids beyond a table among it."""
    found = []
    if list(recipe.dense) != manifest.dense:
        found.append(f"dense columns: prepared are {_listed(manifest.dense)}; the recipe has {_listed(recipe.dense)}")
    if list(recipe.features) != list(manifest.features):
        theirs, ours = _listed(manifest.features), _listed(recipe.features)
        found.append(f"features: prepared are {theirs}; the recipe has {ours}")
    for name, feature in recipe.features.items():
        facts = manifest.features.get(name)
        if facts is None:
            continue
        rows = recipe.tables[feature.table].rows
        if facts.rows != rows:
            found.append(f"{name}: its ids are made for a table of {facts.rows:,} rows, {feature.table} has {rows:,}")
        if facts.table != feature.table:
            found.append(f"{name}: prepared for table {facts.table}, the recipe says {feature.table}")
        if facts.expand != feature.expand:
            found.append(f"{name}: prepared with expand: {facts.expand}, the recipe says {feature.expand}")
        if facts.weighted != (feature.weights is not None):
            found.append(f"{name}: prepared {'with' if facts.weighted else 'without'} weights")
    return found


def _listed(names: object) -> str:
    listed = list(names) if isinstance(names, list | dict) else []
    return ", ".join([*listed[:8], *([f"... ({len(listed)})"] if len(listed) > 8 else [])]) or "none"


def _batches(recipe: Recipe, manifest: Manifest) -> Iterator[Finding]:
    rows, batch = manifest.splits["train"].rows, recipe.train.batch
    steps = rows // batch if recipe.data.tail == "drop" else -(-rows // batch)
    if steps == 0:
        yield Finding(
            "no", f"train.batch: {batch:,} rows are more than the {rows:,} to train on, and data.tail is drop"
        )
        return
    words = f"{rows:,} rows to train on: {steps:,} step{'s' if steps > 1 else ''} of {batch:,} an epoch"
    yield Finding("note" if rows < batch else "ok", words + (", less than one whole batch" if rows < batch else ""))


def _evaluations(recipe: Recipe, manifest: Manifest) -> Iterator[Finding]:
    evaluate = recipe.train.evaluate
    asked = {evaluate.at_end, evaluate.on if evaluate.every else None} - {None}
    for name in sorted(asked, key=str):
        split = manifest.splits[str(name)]
        if split.rows == 0:
            yield Finding("no", f"train.evaluate asks for {name}, which has no rows")
        elif split.label_mean in (0, 1):
            yield Finding("note", f"all labels of {name} are {split.label_mean:g}: it has no AUC and no NE")
        else:
            yield Finding("ok", f"{split.rows:,} rows of {name} to evaluate on")
    if manifest.splits["train"].label_mean in (0, 1):
        yield Finding(
            "no", f"all labels to train on are {manifest.splits['train'].label_mean:g}: nothing can be learned"
        )


def full_tables(manifest: Manifest) -> list[str]:
    """The features whose vocabulary did not fit its table: without a word they would only learn worse."""
    return [
        f"{name}: table {facts.table} is full: {facts.overflow:,} values of its vocabulary have no row "
        f"({facts.unseen:,} look-ups take that of unseen values); give it more rows, or {name} a min_count"
        for name, facts in manifest.features.items()
        if facts.overflow
    ]


def _tables(recipe: Recipe, manifest: Manifest) -> Iterator[Finding]:
    yield from (Finding("note", what) for what in full_tables(manifest))
    users = [feature.table for feature in recipe.features.values()]
    # Of a table that several features share, or whose ids are expanded, nobody knows how many rows are used.
    alone = [facts for facts in manifest.features.values() if users.count(facts.table) == 1 and facts.expand == 1]
    idle = [facts for facts in alone if facts.rows > SMALL_TABLE and facts.distinct < MOSTLY_UNUSED * facts.rows]
    if idle:
        listed = ", ".join(f"{facts.table} ({facts.distinct:,} of {facts.rows:,})" for facts in idle)
        yield Finding("note", f"few rows are used of {listed}; smaller tables would save memory")
