"""Steps on three real ranks: a NaN anywhere touches no table anywhere; precisions; evaluation over uneven ranks."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from dlrmx.data.batches import Batch
from dlrmx.parallel.carrier import Order
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Plan, TablePlan
from dlrmx.recipe.schema import Recipe
from dlrmx.train.build import build_parts
from dlrmx.train.evaluate import evaluate, score_metrics
from dlrmx.train.step import NonFinite, Parts, PeerStopped, Slice, forward, train_step
from ranks import run_ranks
from reference import Reference
from sharding_cases import make_batch, make_plan, make_recipe, slice_of

WORLD, BAD_RANK = 3, 1
FEW = (1, 2, 1, 2)
CPU = torch.device("cpu")


def build(wire: Wire, recipe: Recipe, plan: Plan | None = None) -> Parts:
    plan = plan or make_plan("mix", wire.world)
    parts = build_parts(recipe, plan, wire=wire, dense_dim=make_batch(0).dense.shape[1], device=CPU)
    parts.embeddings.initialise(recipe.seed)
    return parts


def my_slice(wire: Wire, step: int) -> Slice:
    whole = make_batch(step)
    return Slice(slice_of(whole, wire.rank, wire.world), len(whole.labels), f"batch {step}")


def everything(parts: Parts) -> list[torch.Tensor]:
    """Copies of all that a step may change on this rank."""
    tensors = [t for _, w, s in (*parts.embeddings.held(), *parts.embeddings.copies()) for t in (w, s) if t is not None]
    tensors += [t for _, t in (*parts.dense.parameters(), *parts.dense.optimizer_state())]
    return [tensor.clone() for tensor in tensors]


def poison_dense(rows: Slice, parts: Parts) -> Slice:
    dense = rows.batch.dense.copy()
    dense[3, 1] = np.inf
    return Slice(Batch(rows.batch.labels, dense, rows.batch.bags), rows.rows_of_global, rows.where)


def poison_table(rows: Slice, parts: Parts) -> Slice:
    next(iter(parts.embeddings.held()))[1].fill_(torch.nan)
    return rows


def overflow_gradient(rows: Slice, parts: Parts) -> Slice:
    """A finite loss with an infinite gradient of one parameter."""
    dict(parts.model.named_parameters())["top.2.weight"].register_hook(lambda gradient: gradient * torch.inf)
    return rows


def overflow_below(rows: Slice, parts: Parts) -> Slice:
    """A finite gradient above the bottom MLP and an infinite one in it: known after the flag has left."""
    dict(parts.model.named_parameters())["bottom.0.weight"].register_hook(lambda gradient: gradient * torch.inf)
    return rows


POISONS = {"dense": poison_dense, "table": poison_table, "gradient": overflow_gradient, "below": overflow_below}


def poisoned(wire: Wire, chunks: int) -> dict[str, Any]:
    """Per poison: what BAD_RANK's and the other ranks' step 1 raised, and whether anything changed."""
    found = {}
    for name, poison in POISONS.items():
        parts = replace(build(wire, make_recipe("rowwise_adagrad", "adamw")), chunks=chunks)
        train_step(parts, my_slice(wire, 0), step=0, rate=1.0)
        rows = my_slice(wire, 1)
        if wire.rank == BAD_RANK:
            rows = poison(rows, parts)
        before = everything(parts)
        try:
            train_step(parts, rows, step=1, rate=1.0)
            raised = ("", "")
        except (NonFinite, PeerStopped) as error:
            raised = (type(error).__name__, str(error))
        same = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, everything(parts), strict=True))
        found[name] = (*raised, same)
    return found


def trained(wire: Wire, recipe: Recipe, plan: Plan) -> list[float]:
    """Losses of 20 steps, of the whole batch."""
    parts, losses = build(wire, recipe, plan), []
    for step in range(20):
        done = train_step(parts, my_slice(wire, step), step=step, rate=1.0)
        scores = wire.gather(torch.stack([done.logits.detach(), done.labels], dim=1))
        losses.append(0.0 if scores is None else float(score_metrics(scores).loss or 0))
    return losses


def few_rows(wire: Wire, chunks: int) -> list[float]:
    """Losses of batches with fewer rows than there are ranks: some ranks have none, and some chunks."""
    parts, losses = replace(build(wire, make_recipe("sgd")), chunks=chunks), []
    for step, rows in enumerate(FEW):
        whole = make_batch(step, rows=rows)
        mine = Slice(slice_of(whole, wire.rank, wire.world), rows, f"batch {step}")
        done = train_step(parts, mine, step=step, rate=1.0)
        scores = wire.gather(torch.stack([done.logits.detach(), done.labels], dim=1))
        losses.append(0.0 if scores is None else float(score_metrics(scores).loss or 0))
    return losses


def half_plan(wire: Wire) -> Plan:
    """The mix, with tables of fp16."""
    mix = make_plan("mix", wire.world)
    tables = {n: TablePlan(t.rows, t.dim, "fp16", t.kind, t.route, t.strips) for n, t in mix.tables.items()}
    return Plan(wire.world, tables)


def half_recipe() -> Recipe:
    raw = make_recipe("sgd").model_dump()
    return Recipe.model_validate({**raw, "tables": {n: {**t, "dtype": "fp16"} for n, t in raw["tables"].items()}})


def bf16_recipe() -> Recipe:
    raw = make_recipe("sgd").model_dump()
    return Recipe.model_validate({**raw, "train": {**raw["train"], "precision": "bf16"}})


class Fixed:
    """A split made of one batch, that counts how often each row was asked for."""

    def __init__(self, batch: Batch) -> None:
        self.rows = len(batch.labels)
        self.seen = np.zeros(self.rows, int)
        self._batch = batch

    def between(self, first: int, last: int) -> Batch:
        self.seen[first:last] += 1
        return cut(self._batch, first, last)


def cut(batch: Batch, first: int, last: int) -> Batch:
    """Rows [first, last), by way of single rows."""
    rows = len(batch.labels)
    parts = [slice_of(batch, row, rows) for row in range(first, last)]
    if not parts:
        return make_batch(0, rows=0)
    bags = {}
    for name in batch.bags:
        bag = [part.bags[name] for part in parts]
        weights = None if bag[0].weights is None else np.concatenate([b.weights for b in bag])
        ids, lengths = (np.concatenate([getattr(b, field) for b in bag]) for field in ("ids", "lengths"))
        bags[name] = type(bag[0])(ids, lengths, weights)
    return Batch(np.concatenate([p.labels for p in parts]), np.concatenate([p.dense for p in parts]), bags)


def evaluated(wire: Wire) -> dict[str, Any]:
    """Metrics on rank 0, the rows each rank took, and the result of an evaluation that is told to stop."""
    parts = build(wire, make_recipe())
    split = Fixed(make_batch(5, rows=101))
    metrics = evaluate(parts, split, batch=40, step=0)  # type: ignore[arg-type]
    seen = split.seen.tolist()  # one that is stopped has read ahead, as far as its thread came
    stopped = evaluate(parts, split, batch=40, step=0, stop_asked=lambda: True)  # type: ignore[arg-type]
    empty = evaluate(parts, Fixed(make_batch(5, rows=0)), batch=40, step=0)  # type: ignore[arg-type]
    with patch("dlrmx.train.evaluate.EXACT_ROWS", 100):
        counted = evaluate(parts, Fixed(make_batch(5, rows=101)), batch=40, step=0)  # type: ignore[arg-type]
    return {"metrics": metrics, "seen": seen, "stopped": stopped, "empty": empty, "counted": counted}


def ordered(wire: Wire) -> list[int]:
    """What every rank hears when rank 0 says so, and when another does."""
    parts, heard = build(wire, make_recipe()), []
    for speaker in (0, 1):
        order = Order.STOP if wire.rank == speaker else Order.GO_ON
        heard.append(int(forward(parts, my_slice(wire, 0), step=0, order=order).order))
    return heard


def out_of_step(wire: Wire) -> str:
    """The error where one rank is a step ahead."""
    parts = build(wire, make_recipe())
    try:
        forward(parts, my_slice(wire, 0), step=4 if wire.rank == 2 else 3)
    except AssertionError as error:
        return str(error)
    return ""


def run_all() -> dict[str, Any]:
    wire = Wire()
    return {
        "poisoned": poisoned(wire, 1),
        "poisoned in chunks": poisoned(wire, 3),
        "half": trained(wire, half_recipe(), half_plan(wire)),
        "bf16": trained(wire, bf16_recipe(), make_plan("mix", wire.world)),
        "few_rows": [few_rows(wire, chunks) for chunks in (1, 2)],
        "evaluated": evaluated(wire),
        "ordered": ordered(wire),
        "out_of_step": out_of_step(wire),
    }


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return run_ranks(WORLD, run_all)


@pytest.mark.parametrize("case", ["poisoned", "poisoned in chunks"])
@pytest.mark.parametrize("poison", POISONS)
def test_a_non_finite_value_on_one_rank_changes_nothing_on_any(ranks: Any, poison: str, case: str) -> None:
    raised = [rank[case][poison] for rank in ranks]
    assert all(same for _, _, same in raised), "a tensor was changed"
    # A NaN in a table reaches every rank that looks it up; the others were poisoned on one rank alone.
    guilty = {rank for rank, (kind, _, _) in enumerate(raised) if kind == "NonFinite"}
    assert guilty if poison == "table" else guilty == {BAD_RANK}
    for rank, (kind, message, _) in enumerate(raised):
        if kind == "NonFinite":
            assert f"is not finite at step 1 on rank {rank} (batch: batch 1)" in message
        else:
            assert kind == "PeerStopped"
            assert "saw a non-finite value" in message


def test_the_first_tensor_is_named(ranks: Any) -> None:
    assert ranks[BAD_RANK]["poisoned"]["dense"][1].startswith("the loss is not finite")
    assert ranks[BAD_RANK]["poisoned"]["gradient"][1].startswith("the gradient of top.2.weight is not finite")
    assert ranks[BAD_RANK]["poisoned"]["below"][1].startswith("the gradient of bottom.0.weight is not finite")


def test_half_precision_tables_follow_the_reference(ranks: Any) -> None:
    reference = Reference(half_recipe(), dense_dim=make_batch(0).dense.shape[1])
    expected = [reference.step(make_batch(step)) for step in range(20)]
    assert ranks[0]["half"] == pytest.approx(expected, rel=1e-3)
    full = Reference(make_recipe("sgd"), dense_dim=make_batch(0).dense.shape[1])
    assert ranks[0]["half"] != pytest.approx([full.step(make_batch(step)) for step in range(20)], rel=1e-7)


def test_bf16_follows_fp32_within_its_precision(ranks: Any) -> None:
    reference = Reference(make_recipe("sgd"), dense_dim=make_batch(0).dense.shape[1])
    expected = [reference.step(make_batch(step)) for step in range(20)]
    assert ranks[0]["bf16"] == pytest.approx(expected, rel=2e-2)
    assert ranks[0]["bf16"] != pytest.approx(expected, rel=1e-6)


def test_batches_smaller_than_the_number_of_ranks(ranks: Any) -> None:
    reference = Reference(make_recipe("sgd"), dense_dim=make_batch(0).dense.shape[1])
    expected = [reference.step(make_batch(step, rows=rows)) for step, rows in enumerate(FEW)]
    for losses in ranks[0]["few_rows"]:
        assert losses == pytest.approx(expected, rel=1e-5)


def test_evaluation_counts_every_row_once_and_equals_scikit_learn(ranks: Any) -> None:
    assert np.sum([rank["evaluated"]["seen"] for rank in ranks], axis=0).tolist() == [1] * 101
    batch = make_batch(5, rows=101)
    logits = Reference(make_recipe(), dense_dim=batch.dense.shape[1]).predict(batch).double().numpy()
    metrics = ranks[0]["evaluated"]["metrics"]
    assert metrics.rows == 101
    assert metrics.auc == pytest.approx(roc_auc_score(batch.labels, logits), abs=1e-9)
    assert metrics.loss == pytest.approx(log_loss(batch.labels, 1 / (1 + np.exp(-logits))), rel=1e-5)
    assert [rank["evaluated"]["metrics"] for rank in ranks[1:]] == [None, None]


def test_above_the_limit_a_histogram_says_the_same_within_its_bound(ranks: Any) -> None:
    exact, counted = ranks[0]["evaluated"]["metrics"], ranks[0]["evaluated"]["counted"]
    assert counted.auc == pytest.approx(exact.auc, abs=counted.auc_error + 1e-12)
    assert 0 <= counted.auc_error < 1e-2
    assert exact.auc_error == 0.0
    for name in ("rows", "loss", "ne", "accuracy", "calibration", "label_mean"):
        assert getattr(counted, name) == pytest.approx(getattr(exact, name), rel=1e-9), name
    assert [rank["evaluated"]["counted"] for rank in ranks[1:]] == [None, None]


def test_an_evaluation_can_be_stopped_and_can_be_empty(ranks: Any) -> None:
    assert [rank["evaluated"]["stopped"] for rank in ranks] == [None] * WORLD
    assert ranks[0]["evaluated"]["empty"].rows == 0
    assert ranks[0]["evaluated"]["empty"].auc is None


def test_rank_0_alone_gives_orders(ranks: Any) -> None:
    assert [rank["ordered"] for rank in ranks] == [[2, 0]] * WORLD


def test_ranks_at_different_steps_are_found(ranks: Any) -> None:
    assert all("ranks are at different steps" in rank["out_of_step"] for rank in ranks)
