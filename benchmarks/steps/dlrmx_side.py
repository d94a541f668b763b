"""dlrmx's side: python dlrmx_side.py WORKLOAD RANK WORLD STORE EXCHANGE, EXCHANGE a recipe's section in JSON.

Trains by the product's own step, under its planner's plan, with all checks on.
"""

import json
import sys
from collections.abc import Callable
from functools import partial

import torch
from serve import serve, start
from torch.nn.functional import binary_cross_entropy_with_logits
from workloads import WORKLOADS

from dlrmx.parallel.carrier import Order
from dlrmx.parallel.pages import keep_freed_memory
from dlrmx.parallel.wire import Wire
from dlrmx.plan.planner import make_plan
from dlrmx.plan.topology import topology_of
from dlrmx.recipe.profiles import LocalProfile
from dlrmx.train.build import build_parts
from dlrmx.train.step import Asked, Sent, Slice, ask, send, train_sent

SEED = 0


def main(name: str, rank: int, world: int, store: str, exchange: str) -> None:
    keep_freed_memory()
    start(rank, world, store)
    load = WORKLOADS[name]
    recipe = load.recipe(world, json.loads(exchange))
    plan = make_plan(recipe, topology_of(LocalProfile(workers_per_node=world)))
    wire = Wire(plan.ranks_per_node, overlap=recipe.exchange.overlap, messages=recipe.exchange.messages)
    parts = build_parts(recipe, plan, wire=wire, dense_dim=len(recipe.dense), device=torch.device("cpu"))
    parts.embeddings.initialise(SEED)
    slices = [Slice(batch, recipe.train.batch, "") for batch in load.batches(rank)]
    sent: Sent | None = None

    def asked(number: int) -> Asked:
        return ask(parts, slices[number % len(slices)], step=number)

    def step(number: int) -> torch.Tensor:
        nonlocal sent
        upcoming = partial(_ahead, asked, number + 1) if recipe.exchange.overlap else _not_ahead
        done, sent = train_sent(parts, sent or send(parts, asked(number)), rate=1.0, upcoming=upcoming)
        return binary_cross_entropy_with_logits(done.logits.detach(), done.labels, reduction="sum")

    serve(step)


def _ahead(asked: Callable[[int], Asked], number: int, _: Order) -> Asked:
    return asked(number)


def _not_ahead(_: Order) -> None:
    """Each batch is asked for when the one before is done."""


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
