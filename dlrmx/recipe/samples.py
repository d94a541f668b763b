"""What a recipe says of its samples: the data, dense columns, features, tables."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from dlrmx.recipe.settings import Settings, section, setting

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

    def has_rows(self, name: Literal["train", "validation", "test"]) -> bool:
        """Whether a split is given rows at all."""
        return name == "train" or bool(getattr(self, name))

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
