"""Chunks of a batch: tables end as they do without, in every bit, and the whole model within rounding."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from dlrmx.parallel.carrier import Order
from dlrmx.parallel.codec import Codecs
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.wire import Wire
from dlrmx.recipe.schema import Exchange, Recipe, Threshold, Thresholds
from dlrmx.train.build import build_parts
from dlrmx.train.step import Slice, train_step
from ranks import run_ranks
from reference import Reference
from sharding_cases import RANKS_PER_NODE, make_batch, make_plan, make_recipe, slice_of

CPU = torch.device("cpu")
STEPS, CHUNKS = 3, (1, 5)
THRESHOLDS = Thresholds(forward=Threshold(sparsity=0.6, every=2), backward=Threshold(sparsity=0.5, every=2))
WAYS = [(format, "all") for format in ("fp32", "bf16", "int8", "int4", "sign")] + [
    (format, "thresholds") for format in ("fp32", "bf16")
]
KINDS = {3: "mix", 4: "mix_by_node"}


def upstream(step: int, feature: int, rows: int, dim: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + feature)
    return torch.randn(rows, dim, generator=generator)


def tables_after(wire: Wire, chunks: int, format: str, thresholds: Thresholds | None) -> list[torch.Tensor]:
    """What this rank holds after some steps of the exchange alone, and the vectors of each step."""
    recipe = make_recipe("rowwise_adagrad")
    settings = Exchange.model_validate({"forward": format, "backward": format})
    embeddings = Embeddings(
        make_plan(KINDS[wire.world], wire.world),
        recipe.features,
        recipe.optimizer.sparse,
        wire=wire,
        device=CPU,
        codecs=Codecs(settings),
        thresholds=thresholds,
    )
    embeddings.initialise(0)
    exchange, replicated, found = embeddings.exchange, embeddings.replicated, []
    for step in range(STEPS):
        whole = make_batch(step)
        batch = slice_of(whole, wire.rank, wire.world)
        bags, size = list(batch.bags.values()), len(batch.labels)
        routed = exchange.route(bags, size, 1 if exchange.finds_thresholds(step) else chunks)
        counts = exchange.counts(routed, step=step, batch=len(whole.labels), order=Order.GO_ON).wait()
        requests = exchange.arrive(exchange.ids(routed, counts).wait(), counts)
        pooled, nears = exchange.look_up(requests), replicated.look_up(bags, size)
        under_way, leaves, vectors = [], [], []
        pending = exchange.vectors(pooled, routed, requests)
        for chunk, one in enumerate(pending):
            first, last = chunk * size // len(pending), (chunk + 1) * size // len(pending)
            boundary = one.wait()
            leaves.append([near.leaf(first, last) for near in nears])
            features = embeddings.features(boundary, leaves[-1], [bag.lengths[first:last] for bag in bags])
            vectors.append(torch.cat([feature.detach() for feature in features], dim=1))
            gradients = [upstream(step, i, size, v.shape[1])[first:last] for i, v in enumerate(features)]
            torch.autograd.backward(features, gradients)
            under_way.append(exchange.gradients(boundary, 0.0))
        received, flagged = exchange.arrived(under_way, requests)
        assert flagged == []
        dense = torch.zeros(replicated.num_gradients)
        replicated.collect(nears, leaves, dense)
        exchange.update(pooled, received)
        replicated.update(dense)
        found += [torch.cat(vectors), dense]
    for _, weight, state in (*embeddings.held(), *embeddings.copies()):
        found += [weight.clone()] + ([] if state is None else [state.clone()])
    return found


def losses(wire: Wire, recipe: Recipe, chunks: int) -> list[float]:
    """Of each step, the sum over this rank's rows."""
    plan = make_plan(KINDS[wire.world], wire.world)
    parts = build_parts(recipe, plan, wire=wire, dense_dim=make_batch(0).dense.shape[1], device=CPU)
    parts.embeddings.initialise(recipe.seed)
    parts, found = replace(parts, chunks=chunks), []
    for step in range(20):
        whole = make_batch(step)
        rows = Slice(slice_of(whole, wire.rank, wire.world), len(whole.labels), "")
        done = train_step(parts, rows, step=step, rate=1.0)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(done.logits, done.labels, reduction="sum")
        found.append(float(loss))
    return found


def run_world() -> dict[Any, Any]:
    world = torch.distributed.get_world_size()
    wire = Wire(RANKS_PER_NODE if "by_node" in KINDS[world] else 1)
    found: dict[Any, Any] = {
        (format, kind, chunks): tables_after(wire, chunks, format, THRESHOLDS if kind == "thresholds" else None)
        for format, kind in WAYS
        for chunks in CHUNKS
    }
    return found | {"losses": losses(wire, make_recipe("sgd"), 3)}


@pytest.fixture(scope="module")
def worlds() -> dict[int, list[dict[Any, Any]]]:
    return {world: run_ranks(world, run_world) for world in KINDS}


@pytest.mark.parametrize("world", KINDS)
@pytest.mark.parametrize(("format", "kind"), WAYS)
@pytest.mark.parametrize("chunks", CHUNKS[1:])
def test_vectors_and_tables_equal_those_of_one_chunk_in_every_bit(
    worlds: Any, world: int, kind: str, format: str, chunks: int
) -> None:
    for rank in worlds[world]:
        one, several = rank[format, kind, 1], rank[format, kind, chunks]
        assert len(one) == len(several) > 2 * STEPS
        assert all(torch.equal(a, b) for a, b in zip(one, several, strict=True))


@pytest.mark.parametrize("world", KINDS)
def test_the_whole_model_in_chunks_follows_plain_torch(worlds: Any, world: int) -> None:
    reference = Reference(make_recipe("sgd"), dense_dim=make_batch(0).dense.shape[1])
    for step in range(20):
        batch = make_batch(step)
        got = sum(rank["losses"][step] for rank in worlds[world]) / len(batch.labels)
        assert got == pytest.approx(reference.step(batch), rel=1e-5), step
