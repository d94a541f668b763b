"""What a valid recipe says that is allowed and may surprise."""

from collections.abc import Iterator

from dlrmx.recipe.schema import Recipe, Steps, WarmupHoldDecay
from dlrmx.recipe.tree import leaves


def notes(recipe: Recipe, *, ranks: int) -> list[str]:
    """What a user should know of a valid recipe that so many workers are to train, one line each."""
    found = []
    halves = [name for name, table in recipe.tables.items() if table.dtype == "fp16"]
    if halves:
        found.append(f"fp16 on CPU saves memory only: no faster, and rounded without dithering ({', '.join(halves)})")
    if not recipe.dense:
        found.append("no dense columns: the bottom MLP is skipped")
    if recipe.optimizer.sparse.kind == "rowwise_adagrad":
        sliced = [
            name for name, table in recipe.sharding.tables.items() if {"column_wise", "grid"} & set(table.types or ())
        ]
        if sliced:
            what = "column slices with rowwise_adagrad are a different optimizer, each slice keeping sums of its own"
            found.append(f"{what} ({', '.join(sliced)})")
    schedule, stop = recipe.optimizer.schedule, recipe.train.stop
    if isinstance(schedule, WarmupHoldDecay) and isinstance(stop, Steps) and schedule.warmup >= stop.steps:
        found.append(f"training ends (step {stop.steps}) before the warm-up does (step {schedule.warmup})")
    if isinstance(stop, Steps) and ranks > 1:
        for name, threshold in recipe.exchange.threshold:
            if threshold is not None and threshold.sparsity and threshold.every >= stop.steps:
                what = f"exchange.threshold.{name} is found in the first step alone, of initial values"
                found.append(f"{what}: every {threshold.every} steps, of {stop.steps}")
    if recipe.exchange.chunks > (rows := -(-recipe.train.batch // ranks)):
        found.append(f"exchange.chunks: of {recipe.exchange.chunks} chunks of {rows} rows some are empty")
    if ranks == 1 and (asked := list(_exchange(recipe))):
        saves = f"{', '.join(asked)} save{'s' * (len(asked) == 1)} no time"
        found.append(f"one worker sends nothing: {saves}, and may change the numbers")
    return found


def _exchange(recipe: Recipe) -> Iterator[str]:
    """What the recipe asks of the exchange beyond the defaults, by dotted key; of a threshold its sparsity."""
    default = dict(leaves(type(recipe.exchange)(), "exchange"))
    for key, value in leaves(recipe.exchange, "exchange"):
        if value != default.get(key) and not key.endswith((".every", ".overlap")):
            yield key
