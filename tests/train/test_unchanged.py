"""Twenty steps without any of what makes the exchange cheap give the losses of the day before there was any of it.

Another processor rounds the matrix products otherwise, which plain torch in one process shows: there nothing is said.
"""

import json
from pathlib import Path

import pytest
import torch

from dlrmx.parallel.wire import Wire
from dlrmx.train.build import build_parts
from dlrmx.train.step import Slice, train_step
from ranks import run_ranks
from reference import Reference
from sharding_cases import make_batch, make_plan, make_recipe, slice_of

STORED = json.loads((Path(__file__).parent / "losses.json").read_text())
STEPS = 20
KINDS = ("mix", "row_wise")


def losses_of(kind: str, wire: Wire) -> list[str]:
    """This rank's losses, sums over its rows, to the bit."""
    recipe = make_recipe("rowwise_adagrad", "adamw", lr=0.01)
    plan = make_plan(kind, wire.world)
    parts = build_parts(recipe, plan, wire=wire, dense_dim=make_batch(0).dense.shape[1], device=torch.device("cpu"))
    parts.embeddings.initialise(recipe.seed)
    losses = []
    for step in range(STEPS):
        whole = make_batch(step)
        rows = Slice(slice_of(whole, wire.rank, wire.world), len(whole.labels), f"step {step}")
        done = train_step(parts, rows, step=step, rate=1.0)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(done.logits, done.labels, reduction="sum")
        losses.append(float(loss).hex())
    return losses


def all_kinds() -> dict[str, list[str]]:
    wire = Wire()
    return {"plain": plain_losses(), **{kind: losses_of(kind, wire) for kind in KINDS}}


def plain_losses() -> list[str]:
    reference = Reference(make_recipe("rowwise_adagrad", "adamw", lr=0.01), dense_dim=make_batch(0).dense.shape[1])
    return [reference.step(make_batch(step)).hex() for step in range(STEPS)]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_losses_are_the_stored_ones_in_every_bit(world: int) -> None:
    ranks = run_ranks(world, all_kinds)
    if ranks[0]["plain"] != STORED["plain"]:
        pytest.skip("this processor rounds plain torch otherwise than the one that the losses were stored on")
    for kind in KINDS:
        assert [rank[kind] for rank in ranks] == STORED[f"{kind} {world}"], kind
