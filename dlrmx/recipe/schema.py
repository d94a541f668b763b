"""The recipe: every setting, its meaning, its default, and whether a resume may change it.

Its sections are in samples.py and training.py, what they share in settings.py; all are to be had here. Rules that span
several fields are in rules.py; reading a file is load.py; the profile of a cluster is clusters.py.
"""

from typing import Any, Literal

from pydantic import model_validator

from dlrmx.recipe.samples import (
    BadRows,
    Criteo,
    Data,
    Defaults,
    Dense,
    Feature,
    Fraction,
    FractionOrFiles,
    Generate,
    GeneratedDim,
    GeneratedPooling,
    Label,
    Pooling,
    Split,
    Synthetic,
    Table,
    Tabular,
    Teacher,
)
from dlrmx.recipe.settings import (
    NAME,
    Epochs,
    EpochsOrSteps,
    Minutes,
    Name,
    Resume,
    Settings,
    Steps,
    StepsOrMinutes,
    Width,
    section,
    setting,
)
from dlrmx.recipe.training import (
    Best,
    Checkpoint,
    Constant,
    Dcnv2,
    DenseFormat,
    DenseOptimizer,
    Dlrm,
    Evaluate,
    Exchange,
    Log,
    Model,
    Optimizer,
    Retry,
    Schedule,
    Sharding,
    ShardingType,
    SparseOptimizer,
    TableSharding,
    Threshold,
    Thresholds,
    Train,
    WarmupHoldDecay,
    WireFormat,
)

__all__ = [
    "BadRows",
    "Best",
    "Checkpoint",
    "Constant",
    "Criteo",
    "Data",
    "Dcnv2",
    "Defaults",
    "Dense",
    "DenseOptimizer",
    "Dlrm",
    "Epochs",
    "EpochsOrSteps",
    "Evaluate",
    "Exchange",
    "Feature",
    "Fraction",
    "FractionOrFiles",
    "Generate",
    "GeneratedDim",
    "GeneratedPooling",
    "Label",
    "Log",
    "Minutes",
    "Model",
    "NAME",
    "Name",
    "Optimizer",
    "Pooling",
    "Recipe",
    "Resume",
    "Retry",
    "Schedule",
    "Settings",
    "Sharding",
    "ShardingType",
    "SparseOptimizer",
    "Split",
    "Steps",
    "StepsOrMinutes",
    "Synthetic",
    "Table",
    "TableSharding",
    "Tabular",
    "Teacher",
    "Threshold",
    "Thresholds",
    "Train",
    "WarmupHoldDecay",
    "Width",
    "DenseFormat",
    "WireFormat",
    "merge_defaults",
    "section",
    "setting",
]


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
