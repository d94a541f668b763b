"""dlrmx's side: python dlrmx_side.py WORKLOAD RANK WORLD STORE EXCHANGE, EXCHANGE a recipe's section in JSON.

Trains by the product's own step, under its planner's plan, with all checks on.
"""

import json
import sys

import torch
from serve import serve, start
from torch.nn.functional import binary_cross_entropy_with_logits
from workloads import WORKLOADS

from dlrmx.parallel.wire import Wire
from dlrmx.plan.planner import make_plan
from dlrmx.plan.topology import topology_of
from dlrmx.recipe.profiles import LocalProfile
from dlrmx.train.build import build_parts
from dlrmx.train.step import Slice, train_step

SEED = 0


def main(name: str, rank: int, world: int, store: str, exchange: str) -> None:
    start(rank, world, store)
    load = WORKLOADS[name]
    recipe = load.recipe(world, json.loads(exchange))
    plan = make_plan(recipe, topology_of(LocalProfile(workers_per_node=world)))
    device = torch.device("cpu")
    parts = build_parts(recipe, plan, wire=Wire(), dense_dim=len(recipe.dense), device=device)
    parts.embeddings.initialise(SEED)
    slices = [Slice(batch, recipe.train.batch, "") for batch in load.batches(rank)]

    def step(number: int) -> torch.Tensor:
        done = train_step(parts, slices[number % len(slices)], step=number, rate=1.0)
        return binary_cross_entropy_with_logits(done.logits.detach(), done.labels, reduction="sum")

    serve(step)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
