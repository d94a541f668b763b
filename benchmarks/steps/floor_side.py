"""The floor: python floor_side.py WORKLOAD RANK WORLD STORE. What no exchange could undercut.

The plain model's forward, backward and optimizer on the local batch, and the table kernels over this rank's tables for
the ids of all ranks, without any exchange: pooled vectors are made up, and so is their gradient.
"""

import sys

import torch
from serve import serve, start
from torch.nn.functional import binary_cross_entropy_with_logits
from workloads import RATE, WORKLOADS, Workload

from dlrmx.model.build import build_model
from dlrmx.parallel.fused import FusedTable
from dlrmx.parallel.pages import keep_freed_memory
from dlrmx.recipe.schema import SparseOptimizer

SEED = 0


def kernel_inputs(load: Workload, mine: list[int], world: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Per batch: rows and offsets in one fused table of the tables `mine`, for the bags of all ranks."""
    starts = dict(zip(mine, torch.tensor([0, *(load.rows[t] for t in mine)]).cumsum(0).tolist(), strict=False))
    inputs = []
    for batches in zip(*(load.batches(rank) for rank in range(world)), strict=True):
        bags = [(batch.bags[load.names[table]], starts[table]) for batch in batches for table in mine]
        ids = torch.cat([torch.from_numpy(bag.ids + first).to(torch.int32) for bag, first in bags])
        lengths = torch.cat([torch.from_numpy(bag.lengths) for bag, _ in bags])
        inputs.append((ids, torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))))
    return inputs


def main(name: str, rank: int, world: int, store: str) -> None:
    keep_freed_memory()
    start(rank, world, store)
    load = WORKLOADS[name]
    recipe, mine = load.recipe(world, {}), list(range(rank, len(load.rows), world))
    model = build_model(recipe.model, dense_dim=len(recipe.dense), dims=[load.dim] * len(load.rows), seed=SEED)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    settings = SparseOptimizer(kind="rowwise_adagrad", lr=RATE)
    table = FusedTable(sum(load.rows[t] for t in mine), load.dim, "fp32", settings, torch.device("cpu"))
    batches, inputs = load.batches(rank), kernel_inputs(load, mine, world)
    leaves = [torch.randn(load.batch, load.dim, requires_grad=True) for _ in load.rows]

    def step(number: int) -> torch.Tensor:
        batch, (ids, offsets) = batches[number % len(batches)], inputs[number % len(inputs)]
        pooled = table.look_up(ids, offsets, None)
        optimizer.zero_grad()
        logits = model(torch.from_numpy(batch.dense), leaves)
        loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.labels))
        loss.backward()
        optimizer.step()
        pooled.backward(pooled.detach() * 1e-6)
        return loss.detach() * len(batch.labels)

    serve(step)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
