"""Trains the planner's small models for some steps, as the training loop does, and says what each stage took."""

from pathlib import Path

import torch

from dlrmx.data.batches import Split
from dlrmx.data.prepare import prepare, prepared_path
from dlrmx.parallel.carrier import Order
from dlrmx.parallel.wire import Wire
from dlrmx.plan.samples import SAMPLES, STEPS
from dlrmx.train.ahead import Ahead
from dlrmx.train.build import build_parts
from dlrmx.train.stages import Stage
from dlrmx.train.step import Asked, Sent, ask, send, train_sent
from dlrmx.train.stream import Position, Stream

WARM_STEPS = 4  # the first ones touch memory for the first time


def stage_seconds(wire: Wire, prepared: Path) -> dict[str, dict[str, float]]:
    """Seconds of each stage of a step, by sample: means over ranks of the medians over steps. Collective.

    prepared: the folder that their data is prepared in.
    """
    if wire.rank == 0:
        for sample in SAMPLES.values():
            prepare(sample.recipe(), prepared)
    wire.agree(0)
    return {name: _of(name, wire, prepared) for name in SAMPLES}


def _of(name: str, wire: Wire, prepared: Path) -> dict[str, float]:
    recipe, device = SAMPLES[name].recipe(), torch.device("cpu")
    parts = build_parts(recipe, SAMPLES[name].plan(wire.world), wire=wire, dense_dim=len(recipe.dense), device=device)
    parts.embeddings.initialise(recipe.seed)
    split = Split(prepared_path(recipe, prepared), "train")
    stream = Stream(split, recipe, order_seed=0, rank=wire.rank, world=wire.world)
    taken: list[dict[Stage, float]] = []
    with Ahead(stream.slices(Position())) as slices:

        def upcoming(order: Order = Order.GO_ON) -> Asked | None:
            rows = next(slices, None)
            parts.stages.lap("read")
            return None if rows is None else ask(parts, rows, step=len(taken), order=order)

        first = upcoming()
        assert first is not None
        sent: Sent | None = send(parts, first)
        parts.stages.take()
        while sent is not None:
            parts.stages.begin()
            _, sent = train_sent(parts, sent, rate=1.0, upcoming=upcoming)
            taken.append(parts.stages.take())
    assert len(taken) == STEPS, (name, len(taken))
    seconds = torch.tensor([list(stages.values()) for stages in taken[WARM_STEPS:]], dtype=torch.float64)
    mean = seconds.median(dim=0).values / wire.world
    wire.all_reduce("metrics", mean).wait()
    return dict(zip(taken[0], mean.tolist(), strict=True))
