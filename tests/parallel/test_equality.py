"""Every sharding type, on one to five ranks, equals plain torch on one process.

(a) The tables and the exchange alone, on numbers whose sums are exact: equal in every bit.
(b) The whole model for 50 steps: losses, weights and optimizer state within rounding.
"""

from typing import Any

import numpy as np
import pytest
import torch

from dlrmx.data.batches import Batch
from dlrmx.parallel.carrier import Order
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Plan
from dlrmx.recipe.schema import Recipe
from dlrmx.train.build import build_parts
from dlrmx.train.step import Slice, train_step
from ranks import run_ranks
from reference import Reference, pool, update_table
from sharding_cases import (
    KINDS,
    NODE_KINDS,
    RANKS_PER_NODE,
    TABLES,
    assert_near,
    make_batch,
    make_plan,
    make_recipe,
    slice_of,
)

WORLDS = (1, 2, 3, 4, 5)
NODE_WORLDS = (4, 5)  # 2 x 2, and a last node of one rank
SPARSE = ("sgd", "adagrad", "rowwise_adagrad")
EXACT_STEPS, STEPS = 3, 50
RATE, SCALE = 0.125, 0.25
CPU = torch.device("cpu")


def dyadic_table(name: str) -> torch.Tensor:
    rows, dim = TABLES[name]
    generator = torch.Generator().manual_seed(rows + dim)
    return torch.randint(-128, 128, (rows, dim), generator=generator) / 256


def upstream(step: int, feature: int, rows: int, dim: int) -> torch.Tensor:
    """The gradient that reaches a feature's pooled vectors (rows, dim): small integers / 256."""
    generator = torch.Generator().manual_seed(1000 * step + feature)
    return torch.randint(-8, 9, (rows, dim), generator=generator) / 256


def exact_reference(sparse: str, dtype: str = "fp32") -> tuple[dict[str, torch.Tensor], list[list[torch.Tensor]]]:
    """Tables after EXACT_STEPS in plain torch, and the pooled vectors of each step and feature."""
    recipe = make_recipe(sparse, lr=RATE)
    tables, outputs = {name: dyadic_table(name) for name in TABLES}, []
    kept = torch.float16 if dtype == "fp16" else torch.float32
    sums = {n: torch.zeros(t.shape if sparse == "adagrad" else t.shape[:1]) for n, t in tables.items()}
    for step in range(EXACT_STEPS):
        batch = make_batch(step, dyadic=True)
        leaves = {name: table.clone().requires_grad_() for name, table in tables.items()}
        pooled = [
            pool(leaves[feature.table], batch.bags[name], mean=feature.pooling == "mean")
            for name, feature in recipe.features.items()
        ]
        outputs.append([vectors.detach() for vectors in pooled])
        gradients = [upstream(step, i, *vectors.shape) for i, vectors in enumerate(pooled)]
        torch.autograd.backward(pooled, gradients)
        for name, leaf in leaves.items():
            assert leaf.grad is not None
            update_table(tables[name], leaf.grad * SCALE, sums[name], recipe.optimizer.sparse, lr=RATE)
            tables[name] = tables[name].to(kept).to(torch.float32)
    return tables, outputs


def run_exact(wire: Wire, recipe: Recipe, plan: Plan) -> dict[str, Any]:
    """The same steps through the exchange; what this rank holds at the end, and its rows of the pooled vectors."""
    embeddings = Embeddings(plan, recipe.features, recipe.optimizer.sparse, wire=wire, device=CPU)
    for rectangle, weight, _ in (*embeddings.held(), *embeddings.copies()):
        r = rectangle
        weight.copy_(dyadic_table(r.table)[r.row_start : r.row_end, r.col_start : r.col_end])
    exchange, replicated, outputs = embeddings.exchange, embeddings.replicated, []
    for step in range(EXACT_STEPS):
        whole = make_batch(step, dyadic=True)
        batch = slice_of(whole, wire.rank, wire.world)
        bags, size = list(batch.bags.values()), len(batch.labels)
        routed = exchange.route(bags, size)
        counts = exchange.counts(routed, step=step, batch=len(whole.labels), order=Order.GO_ON).wait()
        requests = exchange.arrive(exchange.ids(routed, counts).wait(), counts)
        pooled = exchange.look_up(requests)
        boundary = exchange.vectors(pooled, routed, requests)[0].wait()
        nears = replicated.look_up(bags, size)
        leaves = [near.leaf(0, size) for near in nears]
        features = embeddings.features(boundary, leaves, [bag.lengths for bag in bags])
        outputs.append([vectors.detach() for vectors in features])
        first = wire.rank * len(whole.labels) // wire.world
        rows = slice(first, first + size)
        gradients = [upstream(step, i, len(whole.labels), v.shape[1])[rows] for i, v in enumerate(features)]
        torch.autograd.backward(features, gradients)
        received, flagged = exchange.arrived([exchange.gradients(boundary, 0.0)], requests)
        assert flagged == []
        dense = torch.zeros(replicated.num_gradients)
        replicated.collect(nears, [leaves], dense)
        wire.all_reduce("dense", dense).wait()
        exchange.update(pooled, [gradient * SCALE for gradient in received])
        replicated.update(dense * SCALE)
    return {"held": snapshot(embeddings), "outputs": outputs}


def snapshot(embeddings: Embeddings) -> list[tuple[Any, torch.Tensor, torch.Tensor | None]]:
    return [
        (rectangle, weight.clone(), None if state is None else state.clone())
        for rectangle, weight, state in (*embeddings.held(), *embeddings.copies())
    ]


def run_model(wire: Wire, recipe: Recipe, plan: Plan) -> dict[str, Any]:
    """STEPS of the whole model; this rank's losses (sums), what it holds, and its dense parameters."""
    parts = build_parts(recipe, plan, wire=wire, dense_dim=make_batch(0).dense.shape[1], device=CPU)
    parts.embeddings.initialise(recipe.seed)
    losses = []
    for step in range(STEPS):
        whole = make_batch(step)
        rows = Slice(slice_of(whole, wire.rank, wire.world), len(whole.labels), f"step {step}")
        done = train_step(parts, rows, step=step, rate=1.0)
        losses.append(
            torch.nn.functional.binary_cross_entropy_with_logits(done.logits, done.labels, reduction="sum").item()
        )
    dense = {name: value.clone() for name, value in parts.dense.parameters()}
    return {"losses": losses, "held": snapshot(parts.embeddings), "dense": dense}


def run_world() -> dict[Any, Any]:
    """All cases of one world, in one process group."""
    wire, results = Wire(RANKS_PER_NODE), {}
    for kind, sparse in cases(wire.world):
        plan = make_plan(kind, wire.world)
        results["exact", kind, sparse] = run_exact(wire, make_recipe(sparse, lr=RATE), plan)
        if (kind, sparse) in model_cases(wire.world):
            results["model", kind, sparse] = run_model(wire, make_recipe(sparse), plan)
    for kind in half_kinds(wire.world):
        half = make_recipe("sgd", lr=RATE, dtype="fp16")
        results["exact", kind, "fp16"] = run_exact(wire, half, make_plan(kind, wire.world, "fp16"))
    return results


def cases(world: int) -> list[tuple[str, str]]:
    """(kind, sparse optimizer) of one world; cuts by nodes where there are nodes, whole and partial ones."""
    by_node = [(kind, sparse) for kind in NODE_KINDS for sparse in ("sgd", "rowwise_adagrad")]
    return [(kind, sparse) for kind in KINDS for sparse in SPARSE] + (by_node if world in NODE_WORLDS else [])


def model_cases(world: int) -> list[tuple[str, str]]:
    """Those of which the whole model is run."""
    return [case for case in cases(world) if case[0] not in NODE_KINDS or case[0] in ("bands", "mix_by_node")]


def half_kinds(world: int) -> tuple[str, ...]:
    return (*KINDS, *NODE_KINDS) if world == NODE_WORLDS[0] else ()


@pytest.fixture(scope="module")
def worlds() -> dict[int, list[dict[Any, Any]]]:
    return {world: run_ranks(world, run_world) for world in WORLDS}


def assemble(ranks: list[dict[Any, Any]], case: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Whole tables and optimizer sums from what all ranks hold; every element must be held, copies must agree."""
    weights = {name: torch.full(shape, torch.nan) for name, shape in TABLES.items()}
    states: dict[str, torch.Tensor] = {}
    for rank in ranks:
        for r, weight, state in rank[case]["held"]:
            place = weights[r.table][r.row_start : r.row_end, r.col_start : r.col_end]
            assert place.isnan().all() or torch.equal(place, weight), "copies differ"
            place.copy_(weight)
            if state is not None:
                rows, dim = TABLES[r.table]
                whole = states.setdefault(r.table, torch.zeros((rows, dim) if state.dim() == 2 else (rows,)))
                part = whole[r.row_start : r.row_end]
                (part[:, r.col_start : r.col_end] if state.dim() == 2 else part).copy_(state)
    assert not any(table.isnan().any() for table in weights.values()), "some element is on no rank"
    return weights, states


EVERY_KIND = [(world, kind) for world in WORLDS for kind in dict.fromkeys(kind for kind, _ in cases(world))]


@pytest.mark.parametrize(("world", "kind"), EVERY_KIND)
def test_pooled_vectors_and_sgd_equal_plain_torch_in_every_bit(worlds: Any, world: int, kind: str) -> None:
    assert_exact(worlds[world], ("exact", kind, "sgd"), "fp32")


@pytest.mark.parametrize("kind", half_kinds(NODE_WORLDS[0]))
def test_half_precision_tables_too_rounded_once_a_step(worlds: Any, kind: str) -> None:
    assert_exact(worlds[NODE_WORLDS[0]], ("exact", kind, "fp16"), "fp16")


def assert_exact(ranks: list[dict[Any, Any]], case: Any, dtype: str) -> None:
    tables, outputs = exact_reference("sgd", dtype)
    weights, _ = assemble(ranks, case)
    for name, table in tables.items():
        assert torch.equal(weights[name], table), name
    for step, features in enumerate(outputs):
        for index, expected in enumerate(features):
            got = torch.cat([rank[case]["outputs"][step][index] for rank in ranks])
            assert torch.equal(got, expected), (step, index)


@pytest.mark.parametrize("sparse", ["adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize(("world", "kind"), EVERY_KIND)
def test_adagrads_are_equal_between_plans_in_every_bit(worlds: Any, world: int, kind: str, sparse: str) -> None:
    if (kind, sparse) not in cases(world):
        pytest.skip("by nodes the kernels are the same, and row-wise sums tell more")
    expected, expected_state = assemble(worlds[1], ("exact", "table_wise", sparse))
    weights, state = assemble(worlds[world], ("exact", kind, sparse))
    for name in TABLES:
        if sparse == "rowwise_adagrad" and name in sliced(kind):
            continue  # each slice keeps sums of its own: another optimizer
        assert torch.equal(weights[name], expected[name]), name
        assert torch.equal(state[name], expected_state[name]), name


def sliced(kind: str) -> set[str]:
    """The tables that a kind cuts by columns."""
    every = {"three", "seven", "wide"}
    some = {"mix": {"wide"}, "mix_by_node": {"three", "wide"}}
    return every if kind in ("column_wise", "grid", "grid_by_node") else some.get(kind, set())


def test_the_exact_adagrad_is_the_textbook_one(worlds: Any) -> None:
    for sparse in ("adagrad", "rowwise_adagrad"):
        tables, _ = exact_reference(sparse)
        weights, _ = assemble(worlds[1], ("exact", "table_wise", sparse))
        for name, table in tables.items():
            torch.testing.assert_close(weights[name], table, rtol=1e-5, atol=1e-6)


def train_reference(sparse: str, dtype: torch.dtype) -> tuple[list[float], Reference]:
    reference = Reference(make_recipe(sparse), dense_dim=make_batch(0).dense.shape[1], dtype=dtype)
    return [reference.step(as_dtype(make_batch(step), dtype)) for step in range(STEPS)], reference


def as_dtype(batch: Batch, dtype: torch.dtype) -> Batch:
    return Batch(batch.labels, batch.dense.astype(np.float64 if dtype == torch.float64 else np.float32), batch.bags)


@pytest.fixture(scope="module")
def references() -> dict[str, tuple[list[float], Reference, Reference]]:
    found = {}
    for sparse in SPARSE:
        losses, single = train_reference(sparse, torch.float32)
        found[sparse] = (losses, single, train_reference(sparse, torch.float64)[1])
    return found


@pytest.mark.parametrize(("world", "kind", "sparse"), [(w, *case) for w in WORLDS for case in model_cases(w)])
def test_the_whole_model_follows_plain_torch(worlds: Any, references: Any, world: int, kind: str, sparse: str) -> None:
    if sparse == "rowwise_adagrad" and sliced(kind):
        pytest.skip("row-wise Adagrad under column slices is another optimizer")
    losses, single, double = references[sparse]
    ranks, case = worlds[world], ("model", kind, sparse)
    for step, expected in enumerate(losses):
        got = sum(rank[case]["losses"][step] for rank in ranks) / len(make_batch(step).labels)
        assert got == pytest.approx(expected, rel=1e-5), step
    weights, states = assemble(ranks, case)
    for name in TABLES:
        assert_near(weights[name], single.tables[name], double.tables[name], sparse, name)
        if states:
            key = f"table/{name}/{sparse}.sum"
            assert_near(states[name], single.state[key], double.state[key], sparse, key)
    for name, parameter in single.model.named_parameters():
        for rank in ranks:
            assert torch.equal(rank[case]["dense"][name], ranks[0][case]["dense"][name]), "ranks differ"
        torch.testing.assert_close(ranks[0][case]["dense"][name], parameter.data, rtol=0, atol=1e-5)
