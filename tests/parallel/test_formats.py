"""The exchange in narrow formats: what arrives is what one process that rounds alike computes, in every bit."""

from typing import Any

import numpy as np
import pytest
import torch

from dlrmx.data.batches import Bags, Batch
from dlrmx.parallel.carrier import Order
from dlrmx.parallel.codec import Codecs, make_codec
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Plan
from dlrmx.recipe.schema import DenseFormat, Exchange, Recipe, WireFormat
from dlrmx.train.build import build_parts
from dlrmx.train.step import NonFinite, PeerStopped, Slice, train_step
from ranks import run_ranks, sent_bytes
from reference import pool
from sharding_cases import TABLES, make_batch, make_plan, make_recipe, slice_of

FORMATS: tuple[WireFormat, ...] = ("fp16", "bf16", "int8", "int4")
DENSE: dict[WireFormat, DenseFormat] = {"fp16": "fp16", "bf16": "bf16", "int8": "int8", "int4": "int8", "sign": "int8"}
ALL_FORMATS: tuple[WireFormat, ...] = (*FORMATS, "sign")  # which jumps where numbers are about zero
WORLDS = (1, 2, 3)
HALF = {"sparsity": 0.5, "every": 1}
THRESHOLDS = Exchange.model_validate({"threshold": {"forward": HALF, "backward": HALF, "dense": HALF}})
CPU = torch.device("cpu")
RATE, SCALE, STEPS = 0.125, 0.25, 3


def weights_of(name: str) -> torch.Tensor:
    """Multiples of 2**-12 below 1/2: sums of seven are exact in fp32, and most take more bits than fp16 has."""
    rows, dim = TABLES[name]
    generator = torch.Generator().manual_seed(rows + dim)
    return torch.randint(-2048, 2048, (rows, dim), generator=generator) / 4096


def upstream(step: int, feature: int, rows: int, dim: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + feature)
    return torch.randn(rows, dim, generator=generator)


def run_exchange(wire: Wire, recipe: Recipe, plan: Plan, codecs: Codecs) -> dict[str, Any]:
    """Some steps of the tables alone: pooled vectors of this rank's samples, and what it holds at the end."""
    embeddings = Embeddings(plan, recipe.features, recipe.optimizer.sparse, wire=wire, device=CPU, codecs=codecs)
    for r, weight, _ in embeddings.held():
        weight.copy_(weights_of(r.table)[r.row_start : r.row_end, r.col_start : r.col_end])
    exchange, outputs = embeddings.exchange, []
    for step in range(STEPS):
        whole = make_batch(step, dyadic=True)
        batch = slice_of(whole, wire.rank, wire.world)
        bags, size = list(batch.bags.values()), len(batch.labels)
        routed = exchange.route(bags, size)
        counts = exchange.counts(routed, step=step, batch=len(whole.labels), order=Order.GO_ON).wait()
        requests = exchange.arrive(exchange.ids(routed, counts).wait(), counts)
        pooled = exchange.look_up(requests)
        boundary = exchange.vectors(pooled, routed, requests)[0].wait()
        features = embeddings.features(boundary, (), [bag.lengths for bag in bags])
        outputs.append([vectors.detach() for vectors in features])
        first = wire.rank * len(whole.labels) // wire.world
        gradients = [
            upstream(step, i, len(whole.labels), v.shape[1])[first : first + size] for i, v in enumerate(features)
        ]
        torch.autograd.backward(features, gradients)
        received, flagged = exchange.arrived([exchange.gradients(boundary, 0.0)], requests)
        assert flagged == []
        exchange.update(pooled, [gradient * SCALE for gradient in received])
    return {"outputs": outputs, "held": [(r, w.clone()) for r, w, _ in embeddings.held()]}


def first_step_row_wise(wire: Wire, name: WireFormat) -> list[torch.Tensor]:
    """Pooled vectors of this rank's samples from tables cut by rows."""
    recipe = make_recipe(lr=RATE)
    codecs = Codecs(Exchange(forward=name))
    return list(run_exchange(wire, recipe, make_plan("row_wise", wire.world), codecs)["outputs"][0])


def poisoned(wire: Wire, settings: Exchange) -> str:
    """What each rank raises when a table of rank 0 holds a NaN."""
    recipe = make_recipe().model_copy(update={"exchange": settings})
    parts = build_parts(recipe, make_plan("table_wise", wire.world), wire=wire, dense_dim=5, device=CPU)
    parts.embeddings.initialise(0)
    if wire.rank == 0:
        next(iter(parts.embeddings.held()))[1].fill_(torch.nan)
    whole = make_batch(0)
    try:
        train_step(parts, Slice(slice_of(whole, wire.rank, wire.world), len(whole.labels), ""), step=0, rate=1.0)
    except (NonFinite, PeerStopped) as error:
        return type(error).__name__
    return ""


def losses(wire: Wire, settings: Exchange) -> tuple[list[float], dict[str, int]]:
    """Losses of 30 steps of the whole model (this rank's, sums), and the bytes of the last."""
    recipe = make_recipe("rowwise_adagrad", "adamw", lr=0.01).model_copy(update={"exchange": settings})
    parts = build_parts(recipe, make_plan("mix", wire.world), wire=wire, dense_dim=5, device=CPU)
    parts.embeddings.initialise(0)
    found = []
    for step in range(30):
        whole = make_batch(step)
        sent_bytes(wire)
        done = train_step(
            parts, Slice(slice_of(whole, wire.rank, wire.world), len(whole.labels), ""), step=step, rate=1.0
        )
        loss = torch.nn.functional.binary_cross_entropy_with_logits(done.logits, done.labels, reduction="sum")
        found.append(float(loss))
    return found, sent_bytes(wire)


def run_all() -> dict[Any, Any]:
    wire = Wire()
    found: dict[Any, Any] = {}
    for name in FORMATS:
        codecs = Codecs(Exchange(forward=name, backward=name))
        plan = make_plan("column_wise", wire.world)
        found["exchange", name] = run_exchange(wire, make_recipe("adagrad", lr=RATE), plan, codecs)
        if wire.world == 2:
            found["model", name] = losses(wire, Exchange(forward=name, backward=name, dense=DENSE[name]))
    for name in ALL_FORMATS:
        found["row_wise", name] = first_step_row_wise(wire, name)
        if wire.world == 2:
            found["poisoned", name] = poisoned(wire, Exchange(forward=name, backward=name, dense=DENSE[name]))
    if wire.world == 2:
        found["model", "fp32"] = losses(wire, Exchange())
        found["poisoned", "thresholds"] = poisoned(wire, THRESHOLDS)
    return found


@pytest.fixture(scope="module")
def worlds() -> dict[int, list[dict[Any, Any]]]:
    return {world: run_ranks(world, run_all) for world in WORLDS}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("world", WORLDS[1:])
def test_tables_that_are_not_cut_by_rows_do_not_depend_on_the_ranks(worlds: Any, world: int, name: WireFormat) -> None:
    """For what a rank sends to itself is rounded, too."""
    one, case = worlds[1][0]["exchange", name], ("exchange", name)
    for step in range(STEPS):
        for index, expected in enumerate(one["outputs"][step]):
            got = torch.cat([rank[case]["outputs"][step][index] for rank in worlds[world]])
            if step == 0:
                assert torch.equal(got, expected), index
            # Gradients are added up in another order; a last bit may round to the next number of the format.
            torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-2)
    whole = {(r.table, r.col_start): weight for r, weight in one["held"]}
    for rank in worlds[world]:
        for r, weight in rank[case]["held"]:
            torch.testing.assert_close(weight, whole[r.table, r.col_start], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ALL_FORMATS)
@pytest.mark.parametrize("world", WORLDS)
def test_partial_sums_are_rounded_and_added_in_rank_order(worlds: Any, world: int, name: WireFormat) -> None:
    batch, codec = make_batch(0, dyadic=True), make_codec(name)
    for index, (feature, settings) in enumerate(make_recipe().features.items()):
        weight, bag = weights_of(settings.table), batch.bags[feature]
        rows = len(weight)
        expected = torch.zeros(len(batch.labels), weight.shape[1])
        for rank in range(world):
            part = pool(weight, of_rows(bag, rank * rows // world, (rank + 1) * rows // world), mean=False)
            expected = expected + codec.decode(codec.encode(part))[:, : part.shape[1]]
        if settings.pooling == "mean":
            expected = expected / torch.from_numpy(np.maximum(bag.lengths, 1)).unsqueeze(1)
        got = torch.cat([rank["row_wise", name][index] for rank in worlds[world]])
        assert torch.equal(got, expected), feature


def of_rows(bag: Bags, first: int, last: int) -> Bags:
    """The ids of each bag within [first, last)."""
    kept = (bag.ids >= first) & (bag.ids < last)
    sample = np.repeat(np.arange(len(bag.lengths)), bag.lengths)
    lengths = np.bincount(sample[kept], minlength=len(bag.lengths)).astype(np.int32)
    return Bags(bag.ids[kept], lengths, None if bag.weights is None else bag.weights[kept])


@pytest.mark.parametrize("name", [*ALL_FORMATS, "thresholds"])
def test_a_nan_is_found_behind_every_format_and_threshold(worlds: Any, name: str) -> None:
    raised = [rank["poisoned", name] for rank in worlds[2]]
    assert "NonFinite" in raised
    assert set(raised) <= {"NonFinite", "PeerStopped"}


@pytest.mark.parametrize("name", FORMATS)
def test_training_follows_fp32_and_sends_less(worlds: Any, name: WireFormat) -> None:
    full, narrow = ([rank["model", key] for rank in worlds[2]] for key in ("fp32", name))
    whole = [sum(rank[0][step] for rank in full) for step in range(30)]
    bound = 4e-2 if name == "int4" else 2e-2
    assert [sum(rank[0][step] for rank in narrow) for step in range(30)] == pytest.approx(whole, rel=bound)
    assert [sum(rank[0][step] for rank in narrow) for step in range(30)] != whole
    for rank in range(2):
        (_, before), (_, after) = full[rank], narrow[rank]
        assert after["ids"] == before["ids"]
        for kind in ("vectors", "gradients", "dense"):
            # int8: a byte a number and 4 a vector, whose widths are 4 to 64 here and 128 in the dense part; int4: half.
            least, most = {"int8": (0.25, 0.55), "int4": (0.125, 0.275)}.get(name, (0.5, 0.51))
            if kind == "dense" and name == "int4":  # int8 there
                least, most = 0.25, 0.55
            shares = after[kind] / before[kind] * (0.5 if kind == "dense" else 1)
            assert least <= shares <= most, (kind, shares)


def test_batches_are_dyadic_enough() -> None:
    """Sums are exact in fp32, and not in the formats: else this would test nothing."""
    batch: Batch = make_batch(0, dyadic=True)
    sums = pool(weights_of("wide"), batch.bags["d"], mean=False)
    assert torch.equal(sums.double(), pool(weights_of("wide").double(), batch.bags["d"], mean=False))
    assert not torch.equal(sums.half().float(), sums)
