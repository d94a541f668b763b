"""The recipe: every setting, its meaning, its default, and whether a resume may change it.

A `fixed` setting is part of the recipe's fingerprint: a resume refuses a change and points to
`train.init_from`. A `free` one may change at a resume. Rules that span several fields are in
rules.py; reading a file is load.py; the profile of a cluster is clusters.py.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

Resume = Literal["fixed", "free"]

NAME = r"^[a-z][a-z0-9-]{0,30}$"
Name = Annotated[str, Field(pattern=r"^\w[\w-]{0,99}$")]


def setting(description: str, default: Any = ..., *, resume: Resume = "fixed", **limits: Any) -> Any:
    """A recipe field: its description, default and whether a resume may change it."""
    return Field(default, description=description, json_schema_extra={"resume": resume}, **limits)


def section(factory: Any, description: str, *, resume: Resume = "fixed") -> Any:
    """A recipe section with a default; its own fields say whether a resume may change them."""
    return Field(default_factory=factory, description=description, json_schema_extra={"resume": resume})


class Settings(BaseModel):
    """What all parts of a recipe share: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)


class Steps(Settings):
    """A distance in training steps."""

    steps: int = setting("global steps", resume="free", ge=1)


class Minutes(Settings):
    """A distance in minutes of wall time."""

    minutes: float = setting("minutes of wall time", resume="free", gt=0)


class Epochs(Settings):
    """A distance in passes over the training split."""

    epochs: int = setting("passes over the training split", resume="free", ge=1)


def _unit(distance: Any) -> str | None:
    """The one key of a distance, which says its unit."""
    keys = list(type(distance).model_fields) if isinstance(distance, Settings) else distance
    return str(next(iter(keys))) if isinstance(keys, list | dict) and len(keys) == 1 else None


_Steps = Annotated[Steps, Tag("steps")]
_Minutes = Annotated[Minutes, Tag("minutes")]
_Epochs = Annotated[Epochs, Tag("epochs")]
EpochsOrSteps = Annotated[_Epochs | _Steps, Discriminator(_unit)]
StepsOrMinutes = Annotated[_Steps | _Minutes, Discriminator(_unit)]
Width = Annotated[int, Field(ge=1)]


# ---------------------------------------------------------------------------------------- data


Fraction = Annotated[float, Field(ge=0, lt=1)]
FractionOrFiles = Annotated[
    Annotated[Fraction, Tag("fraction")] | Annotated[list[str], Tag("files")],
    Discriminator(lambda value: "files" if isinstance(value, list) else "fraction"),
]


class Split(Settings):
    """Which rows validate and test; all others train. A split that a hash makes stays as it is when rows are added."""

    by: Literal["hash", "fraction", "files"] = setting(
        "a hash of the row's number (or of a column) decides; or the last rows are held out, in stored order; or files",
        "hash",
    )
    on: str | None = setting("column whose value is hashed, so that no value is in two splits; default: the row", None)
    validation: FractionOrFiles = setting(
        "fraction of the rows; by files: globs, matched against the end of each path of data.files", 0.05
    )
    test: FractionOrFiles = setting("as validation; a file that both name is halved", 0.05)
    first: Literal["validation", "test"] = setting(
        "which of the two comes first: in the last rows (fraction), in a file that both name (files)", "validation"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_files_by_default(cls, raw: Any) -> Any:
        by_files = isinstance(raw, dict) and raw.get("by") == "files"
        return {"validation": [], "test": [], **raw} if by_files else raw

    @model_validator(mode="after")
    def _shares_are_of_their_kind(self) -> "Split":
        for name in ("validation", "test"):
            if isinstance(getattr(self, name), list) != (self.by == "files"):
                wanted = "a list of files" if self.by == "files" else "a fraction of the rows"
                raise ValueError(f"by {self.by}, so `{name}` must be {wanted}")
        return self

    def fraction(self, name: Literal["validation", "test"]) -> float:
        """The fraction of the rows for a split, by hash or fraction."""
        share = getattr(self, name)
        assert isinstance(share, float | int), f"data.split.{name}: {share} where the split is by {self.by}"
        return float(share)

    def files(self, name: Literal["validation", "test"]) -> list[str]:
        """The patterns for a split, by files."""
        share = getattr(self, name)
        assert isinstance(share, list), f"data.split.{name}: {share} where the split is by files"
        return share


class Pooling(Settings):
    """How many ids a synthetic multi-hot feature has per sample."""

    mean: float = setting("mean number of ids per sample", gt=0)
    max: int = setting("most ids per sample", ge=1, le=10_000)


class Teacher(Settings):
    """The planted model that labels synthetic samples: how strongly each part moves the logit."""

    dense: float = setting("standard deviation of the dense part of the logit", 0.5, ge=0, le=100)
    ids: float = setting("standard deviation of the id part of the logit", 1.5, ge=0, le=100)
    bias: float = setting("constant added to the logit (negative: few positives)", -1.0, ge=-100, le=100)


class Synthetic(Settings):
    """Data drawn from a planted teacher, whose best reachable normalized entropy is known."""

    kind: Literal["synthetic"] = setting("where samples come from")
    rows: int = setting("samples in all, over the three splits", ge=1)
    zipf: float = setting("exponent of the ids' Zipf distribution (0: uniform)", 1.05, ge=0, le=10)
    pooling: dict[str, Pooling] = setting("ids per sample of multi-hot features (others have one)", {})
    teacher: Teacher = section(Teacher, "the planted model")
    split: Split = section(Split, "validation and test rows")
    order: Literal["shuffled", "as_stored"] = setting("order of training rows within an epoch", "shuffled")
    tail: Literal["keep", "drop"] = setting("an epoch's last, smaller batch is trained on or left out", "keep")


BadRows = Literal["fail", "skip", "zero"]
_BAD_ROWS = (
    "a row that cannot be read is an error, is left out, or is kept: what is bad in it is missing, a bad label 0"
)


class Label(Settings):
    """Which column is the label."""

    column: str = setting("name of the column")
    threshold: float | None = setting("1 where the value is at least this; default: the column holds 0 and 1", None)


class Tabular(Settings):
    """CSV, TSV or Parquet files."""

    kind: Literal["tabular"] = setting("where samples come from")
    files: list[str] = setting("paths or globs; they begin at the recipe's folder", min_length=1)
    format: Literal["auto", "csv", "tsv", "parquet"] = setting("of the files; auto goes by their names", "auto")
    label: Label = setting("the label column")
    missing: list[str] = setting("text that means a missing value", ["", "NA"])
    bad_rows: BadRows = setting(_BAD_ROWS, "fail")
    split: Split = section(Split, "validation and test rows")
    order: Literal["shuffled", "as_stored"] = setting("order of training rows within an epoch", "shuffled")
    tail: Literal["keep", "drop"] = setting("an epoch's last, smaller batch is trained on or left out", "keep")


class Criteo(Settings):
    """Files in Criteo's layout: label, I1 to I13, C1 to C26 in hexadecimal; tabs or commas, plain or .gz."""

    kind: Literal["criteo"] = setting("where samples come from")
    files: list[str] = setting("paths or globs; they begin at the recipe's folder", min_length=1)
    bad_rows: BadRows = setting(_BAD_ROWS, "fail")
    split: Split = section(Split, "validation and test rows")
    order: Literal["shuffled", "as_stored"] = setting("order of training rows within an epoch", "shuffled")
    tail: Literal["keep", "drop"] = setting("an epoch's last, smaller batch is trained on or left out", "keep")


Data = Annotated[Synthetic | Tabular | Criteo, Field(discriminator="kind")]


class Dense(Settings):
    """How a dense column becomes a number."""

    transform: Literal["none", "log1p", "standardize"] = setting("applied to each value", "none")
    mean: float | None = setting("subtracted by standardize", None)
    std: float | None = setting("divided by in standardize", None, gt=0)
    missing: float = setting("the value (after the transform) of a missing field", 0.0)


class Feature(Settings):
    """How a categorical column becomes ids, and how their vectors are pooled."""

    column: str = setting("column in the files; default: the feature's name")
    table: str = setting("embedding table looked up in; default: the feature's name")
    ids: Literal["hash", "vocabulary", "modulo", "identity"] = setting(
        "how a value becomes an id: by its hash, by a vocabulary of the values in training rows, or, "
        "where values are whole numbers, by its remainder or as it is",
        "hash",
    )
    min_count: int = setting("a vocabulary leaves out values seen less often", 1, ge=1)
    separator: str | None = setting("splits a text field into several values", None, min_length=1)
    max_ids: int | None = setting("keep at most the first so many values", None, ge=1)
    expand: int = setting(
        "one id becomes so many: itself and others of its table, drawn evenly by a hash of it (uniform-v1, "
        "as in MLPerf's multi-hot data)",
        1,
        ge=1,
    )
    missing: Literal["reserve", "drop"] = setting(
        "a missing value takes a row of its own, or leaves the bag empty", "reserve"
    )
    pooling: Literal["sum", "mean"] = setting("how the vectors of one bag become one", "sum")
    weights: str | None = setting("column with a weight for each value (separated alike)", None)


class Table(Settings):
    """An embedding table: a capacity, never read from the data."""

    rows: int = setting("capacity in rows", ge=1, lt=2**40)
    dim: int = setting("embedding dim, a multiple of 4", ge=4, multiple_of=4)
    dtype: Literal["fp32", "fp16"] = setting("of the weights; fp16 saves memory and, on CPU, nothing else", "fp32")
    bad_ids: Literal["fail", "clamp", "hash"] = setting(
        "a value that is no id (modulo, identity; Criteo: no hexadecimal) makes its row bad, becomes the nearest id, "
        "or is hashed",
        "fail",
    )


class GeneratedDim(Settings):
    """How wide generated tables are: many are narrow and few wide, between the borders and with this mean."""

    min: int = setting("embedding dim of the narrowest", resume="free", ge=4, multiple_of=4)
    max: int = setting("of the widest", resume="free", ge=4, multiple_of=4)
    mean: float = setting("over the tables", resume="free", ge=4)


class GeneratedPooling(Settings):
    """How many ids a sample has for each generated feature: log-normal over the features."""

    mean: float = setting("ids per sample and feature, over the features", resume="free", gt=0, le=5_000)
    spread: float = setting(
        "standard deviation of the logarithm of the features' means", 0.0, resume="free", ge=0, le=3
    )


class Generate(Settings):
    """A group of tables drawn from distributions, each with one feature of its name: GROUP000, GROUP001, ..."""

    tables: int = setting("how many", resume="free", ge=1, le=100_000)
    rows: int | None = setting("rows in all; or say `parameters`", None, resume="free", ge=1)
    parameters: int | None = setting(
        "rows x dim in all (each table's rows are rounded); or say `rows`", None, resume="free", ge=4
    )
    spread: float = setting(
        "standard deviation of the logarithm of the tables' rows (log-normal)", 1.5, resume="free", ge=0, le=5
    )
    dim: GeneratedDim = setting("embedding dims", resume="free")
    pooling: GeneratedPooling = section(lambda: GeneratedPooling(mean=1.0), "ids per sample", resume="free")
    seed: int = setting("which table gets which of the drawn sizes", 0, resume="free", ge=0)


class Defaults(Settings):
    """What features and tables take where they say nothing themselves."""

    feature: dict[str, Any] = setting("settings of every feature", {}, resume="free")
    table: dict[str, Any] = setting("settings of every table", {}, resume="free")


# --------------------------------------------------------------------------------------- model


class Dlrm(Settings):
    """Bottom MLP, interaction of its output with the pooled vectors, top MLP."""

    kind: Literal["dlrm"] = setting("architecture")
    bottom: list[Width] = setting("widths of the bottom MLP; the last is the embedding dim", min_length=1)
    top: list[Width] = setting("widths of the top MLP; the last is 1", min_length=1)
    interaction: Literal["dot", "cat"] = setting("dot products of all pairs, or plain concatenation", "dot")


class Dcnv2(Settings):
    """Bottom MLP, low-rank cross network over the concatenation, top MLP (DLRM-DCNv2)."""

    kind: Literal["dcnv2"] = setting("architecture")
    bottom: list[Width] = setting("widths of the bottom MLP", min_length=1)
    top: list[Width] = setting("widths of the top MLP; the last is 1", min_length=1)
    cross_layers: int = setting("layers of the cross network", 3, ge=1, le=1_000)
    cross_rank: int = setting("rank of each cross layer's matrix", 512, ge=1)


Model = Annotated[Dlrm | Dcnv2, Field(discriminator="kind")]


# ------------------------------------------------------------------------------------ optimizer


class DenseOptimizer(Settings):
    """Optimizer of the MLPs and the cross network."""

    kind: Literal["sgd", "adagrad", "adamw"] = setting("algorithm")
    lr: float = setting("learning rate", resume="free", gt=0, le=1_000_000)
    eps: float = setting("added to the denominator (adagrad, adamw)", 1e-8, resume="free", gt=0)
    weight_decay: float = setting("decoupled weight decay (adamw)", 0.0, resume="free", ge=0, le=1_000_000)


class SparseOptimizer(Settings):
    """Optimizer of the embedding tables, fused into their backward pass."""

    kind: Literal["sgd", "adagrad", "rowwise_adagrad"] = setting("algorithm")
    lr: float = setting("learning rate", resume="free", gt=0, le=1_000_000)
    eps: float = setting("added to the denominator (adagrad, rowwise_adagrad)", 1e-8, resume="free", gt=0)


class Constant(Settings):
    """The learning rates as given."""

    kind: Literal["constant"] = setting("shape of the schedule", "constant", resume="free")


class WarmupHoldDecay(Settings):
    """Linear warm-up, hold, polynomial decay: multiplies both learning rates."""

    kind: Literal["warmup_hold_decay"] = setting("shape of the schedule", resume="free")
    warmup: int = setting("steps from 0 to the full rate", 0, resume="free", ge=0)
    hold: int = setting("steps at the full rate", 0, resume="free", ge=0)
    decay: int = setting("steps from the full rate to the floor", 0, resume="free", ge=0)
    power: float = setting("of the polynomial", 2.0, resume="free", gt=0)
    floor: float = setting("factor after the decay", 1e-7, resume="free", ge=0, le=1)


Schedule = Annotated[Constant | WarmupHoldDecay, Field(discriminator="kind")]


class Optimizer(Settings):
    """Both optimizers and the schedule of their rates."""

    dense: DenseOptimizer = setting("of the dense part")
    sparse: SparseOptimizer = setting("of the embedding tables")
    schedule: Schedule = section(Constant, "of both learning rates", resume="free")


# ------------------------------------------------------------------------------------- training


class Evaluate(Settings):
    """When to evaluate, and on what."""

    every: Steps | None = setting("distance between evaluations; default: only at the end", None, resume="free")
    on: Literal["validation", "test"] = setting("split of the evaluations on the way", "validation", resume="free")
    at_end: Literal["validation", "test"] | None = setting("split evaluated at the end", "test", resume="free")


class Train(Settings):
    """Batch, length, precision."""

    batch: int = setting("global batch in rows, whatever the number of ranks", ge=1)
    stop: EpochsOrSteps = setting("when training is done", resume="free")
    init_from: str | None = setting("checkpoint or run whose weights to start from, at step 0", None)
    precision: Literal["fp32", "bf16"] = setting("of the dense part's matrix products", "fp32")
    evaluate: Evaluate = section(Evaluate, "when and on what to evaluate", resume="free")


ShardingType = Literal["table_wise", "row_wise", "column_wise", "data_parallel", "table_row_wise", "grid"]


class TableSharding(Settings):
    """What the planner may do with one table."""

    types: list[ShardingType] | None = setting(
        "sharding types to choose from; default: all but those that cut columns, where row sums would be split",
        None,
        resume="free",
        min_length=1,
    )
    slices: int | None = setting(
        "column slices of column_wise and grid; default: as many as pay", None, resume="free", ge=2
    )
    route: Literal["flat", "by_node"] | None = setting(
        "sums of rows on several ranks go straight to the sample's owner, or are added inside each node first; "
        "default: what is faster",
        None,
        resume="free",
    )
    tier: Literal["hbm", "uvm_caching", "uvm"] | None = setting(
        "memory: the device's, the host's with the busiest rows cached on the device, or the host's; "
        "default: the device's, the host's where it does not suffice",
        None,
        resume="free",
    )
    cache_ratio: float | None = setting(
        "part of the rows that uvm_caching keeps on the device; default: what pays", None, resume="free", gt=0, le=1
    )


class Sharding(Settings):
    """How tables are cut over the ranks. Free: a resume may use another plan."""

    plan: str = setting("auto, or the path of a plan file (it begins at the recipe's folder)", "auto", resume="free")
    tables: dict[str, TableSharding] = setting("constraints by table", {}, resume="free")
    split_sums: bool = setting(
        "tables may be cut by columns though row-wise AdaGrad then keeps a sum of its own for each slice, "
        "which is another optimizer",
        False,
        resume="free",
    )
    reserve: float = setting("fraction of each rank's memory kept free", 0.15, resume="free", ge=0, lt=1)


class Threshold(Settings):
    """Dynamic communication thresholding (DCT): of what would be sent only the largest entries are."""

    sparsity: float = setting("part of the entries that is not sent", ge=0, lt=1)
    every: int = setting("steps between two settings of the threshold", 1_000, ge=1)


class Thresholds(Settings):
    """What is thresholded."""

    dense: Threshold | None = setting("gradients of the dense part; what is not sent is added to the next step's", None)
    forward: Threshold | None = setting("entries of the tables' vectors; the others count as zero", None)
    backward: Threshold | None = setting("entries of the vectors' gradients, among those sent forward", None)


WireFormat = Literal["fp32", "fp16", "bf16", "int8"]


class Exchange(Settings):
    """What travels between ranks, and how.

    Formats: fp16 and bf16 halve what travels, int8 (with a scale for each vector) quarters it. Sums are added in fp32.
    """

    overlap: bool = setting(
        "what travels does so while something else is computed: the next batch's ids under this one's step, vectors "
        "under the bottom MLP, gradients under the backward pass; the numbers stay the same to the bit",
        True,
        resume="free",
    )
    messages: int = setting(
        "pieces in which vectors and gradients travel at once: 1 where ranks are near each other; between hosts gloo "
        "fills half a slow link with one, and most of it with 16",
        1,
        resume="free",
        ge=1,
        le=64,
    )
    chunks: int = setting(
        "parts of each rank's batch that go through the model one after the other, so that vectors and gradients of "
        "one travel under the work on another: pays on slow links; tables are updated once, and only the order of "
        "additions changes",
        1,
        resume="free",
        ge=1,
        le=64,
    )
    forward: WireFormat = setting("format of the tables' vectors on the wire", "fp32")
    backward: WireFormat = setting("format of the vectors' gradients on the wire", "fp32")
    dense: WireFormat = setting("format of the dense gradients on the wire", "fp32")
    threshold: Thresholds = section(Thresholds, "dynamic communication thresholding")


class Best(Settings):
    """Which checkpoint to keep beside the last ones."""

    metric: Literal["validation.ne", "validation.loss", "validation.auc"] = setting(
        "the evaluation's metric (the lowest ne or loss, the highest auc)", "validation.ne", resume="free"
    )


class Checkpoint(Settings):
    """When checkpoints are written (always at the end and on a stop request) and which are kept."""

    save: bool = setting(
        "write checkpoints; false: none at all, so that a stopped or failed run is lost, and the model too",
        True,
        resume="free",
    )
    every: StepsOrMinutes | None = setting(
        "distance between checkpoints; default: only the last one", None, resume="free"
    )
    keep: int = setting("so many of the newest verified checkpoints stay", 3, resume="free", ge=1)
    best: Best | None = setting("also keep the best one", None, resume="free")
    on_error: Literal["continue", "stop"] = setting(
        "when a save on the way fails: go on and count it, or stop; the last one has to succeed",
        "continue",
        resume="free",
    )


class Retry(Settings):
    """When a failed run is tried again by itself."""

    attempts_without_progress: int = setting(
        "attempts in a row that may end without a new checkpoint", 3, resume="free", ge=1
    )
    stop_on_repeat: bool = setting("stop when two attempts end at one step for one cause", True, resume="free")


class Log(Settings):
    """What a run writes down."""

    every: Steps = section(lambda: Steps(steps=10), "distance between records", resume="free")


# --------------------------------------------------------------------------------------- recipe


class Recipe(Settings):
    """One experiment. `features` and `tables` hold their merged `defaults` once validated."""

    dlrmx: Literal[1] = setting("version of this schema")
    name: str = setting("name of the experiment; default: the file's stem", pattern=NAME, resume="free")
    seed: int = setting("of initial values, sample order and synthetic data", 0, ge=0, lt=2**31)
    data: Data = setting("where samples come from")
    dense: dict[str, Dense] = setting("dense columns and their transforms", {})
    defaults: Defaults = section(Defaults, "what features and tables share", resume="free")
    features: dict[Name, Feature] = setting("categorical features", min_length=1)
    tables: dict[Name, Table] = setting("embedding tables", min_length=1)
    generate: dict[Name, Generate] = setting(
        "groups of tables with their features, drawn when the recipe is loaded (synthetic data only); an entry of the "
        "same name in `tables` or `features` changes a drawn one",
        {},
        resume="free",  # what it becomes is fixed
    )
    model: Model = setting("architecture")
    optimizer: Optimizer = setting("optimizers and schedule")
    train: Train = setting("batch, length, precision")
    sharding: Sharding = section(Sharding, "how tables are cut over the ranks", resume="free")
    exchange: Exchange = section(Exchange, "what travels between ranks")
    checkpoint: Checkpoint = section(Checkpoint, "when checkpoints are written and kept", resume="free")
    retry: Retry = section(Retry, "when a failed run is tried again", resume="free")
    log: Log = section(Log, "what a run writes down", resume="free")
    cluster: str | dict[str, Any] = setting("a profile's name, or a profile inline", "local", resume="free")

    @model_validator(mode="before")
    @classmethod
    def _merge_defaults(cls, raw: Any) -> Any:
        return merge_defaults(raw) if isinstance(raw, dict) else raw


def merge_defaults(raw: dict[str, Any]) -> dict[str, Any]:
    """Give each feature and table what `defaults` says, and a feature its column and table."""
    defaults = raw.get("defaults")
    shared = defaults if isinstance(defaults, dict) else {}
    merged = dict(raw)
    for group, key in (("features", "feature"), ("tables", "table")):
        entries, common = raw.get(group), shared.get(key)
        if isinstance(entries, dict):
            common = common if isinstance(common, dict) else {}
            named = group == "features"
            merged[group] = {name: _merge(name, entry, common, named=named) for name, entry in entries.items()}
    return merged


def _merge(name: str, entry: Any, common: dict[str, Any], *, named: bool) -> Any:
    if entry is not None and not isinstance(entry, dict):
        return entry
    own = {"column": name, "table": name} if named else {}
    return {**own, **common, **(entry or {})}
