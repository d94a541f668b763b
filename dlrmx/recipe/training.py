"""What a recipe says of its training: model, optimizers, length, sharding, exchange, checkpoints."""

from typing import Annotated, Literal

from pydantic import Field

from dlrmx.recipe.settings import EpochsOrSteps, Settings, Steps, StepsOrMinutes, Width, section, setting

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
    """What is thresholded. Entries travel as single numbers: in fp32, fp16 or bf16, vectors and gradients alike."""

    dense: Threshold | None = setting("gradients of the dense part; what is not sent is added to the next step's", None)
    forward: Threshold | None = setting("entries of the tables' vectors; the others count as zero", None)
    backward: Threshold | None = setting("entries of the vectors' gradients, among those sent forward", None)


DenseFormat = Literal["fp32", "fp16", "bf16", "int8"]
WireFormat = Literal[DenseFormat, "int4", "sign"]


class Exchange(Settings):
    """What travels between ranks, and how.

    Formats: fp16 and bf16 halve what travels, int8 (with a scale for each vector) quarters it, int4 makes it an eighth,
    and sign (a bit for each number, a byte for the vector's mean magnitude) nearly a thirtieth. Sums are added in fp32.
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
        "additions changes, which narrow formats and thresholds make more of",
        1,
        resume="free",
        ge=1,
        le=64,
    )
    forward: WireFormat = setting("format of the tables' vectors on the wire", "fp32")
    backward: WireFormat = setting("format of the vectors' gradients on the wire", "fp32")
    dense: DenseFormat = setting("format of the dense gradients on the wire", "fp32")
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
