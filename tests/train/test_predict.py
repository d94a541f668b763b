"""Scores of other files by a checkpoint: those of plain torch, in the order of the rows, on any number of ranks."""

import csv
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
import torch

from data_recipes import tabular, whole
from dlrmx.data.manifest import read_manifest
from dlrmx.data.prepare import prepare
from dlrmx.parallel.wire import Wire
from dlrmx.plan.planner import make_plan
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import read_records
from dlrmx.train.build import build_parts
from dlrmx.train.metrics import binary_metrics
from dlrmx.train.session import Clock, Evaluation, Session, Task
from dlrmx.train.worker import work
from plan_recipes import processors
from ranks import run_ranks
from reference import Reference
from training import tensors_of, train_plan

FEATURES: dict[str, Any] = {"user": {"ids": "vocabulary"}, "tags": {"ids": "vocabulary", "separator": "|"}, "page": {}}
ROWS = {"user": 30, "tags": 9, "page": 50}
TRAIN = {"batch": 32, "stop": {"epochs": 2}, "evaluate": {"at_end": None}}
RATES = {"dense": {"kind": "sgd", "lr": 0.5}, "sparse": {"kind": "adagrad", "lr": 0.5}}
# Batches of 32: the last of 1 row (less than there are ranks), of 2, and a whole one.
SIZES = {"one_more": 65, "two_more": 66, "whole": 64, "few": 2}


def write(path: Path, rows: int, *, labelled: bool, seed: int) -> Path:
    dice = random.Random(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*(["y"] if labelled else []), "user", "tags", "page", "n"])
        for _ in range(rows):
            user, tags = dice.randrange(40), dice.sample("abcdefgh", dice.randint(0, 3))
            label = [int(user % 3 == 0)] if labelled else []
            table.writerow([*label, f"u{user}", "|".join(tags), dice.randrange(99), dice.gauss(0, 1)])
    return path


def recipe_of(path: Path) -> Recipe:
    return tabular([path], FEATURES, ROWS, dense={"n": {}}, train=TRAIN, optimizer=RATES)


def evaluate(wire: Wire, root: Path, recipe: Recipe, data: Path, checkpoint: Path, asked: Evaluation) -> Path:
    """A run that evaluates, on all ranks of `wire`; its folder."""
    number = 0
    if wire.rank == 0:
        run = create_run(root, "evaluation", None, "0" * 12)
        claim_attempt(run)
        number = int(run.name.rpartition("-")[2])
    run = RunPaths(root / f"evaluation-{wire.agree(number)}")
    plan = make_plan(recipe, processors(wire.world, 2**30), read_manifest(data))
    parts = build_parts(recipe, plan, wire=wire, dense_dim=1, device=torch.device("cpu"))
    work(Session(Task(run, run.attempt(1), recipe, plan, data, checkpoint, asked), parts, Clock()))
    return run.dir


def train(root: Path, recipe: Recipe, data: Path) -> Path:
    wire = Wire()
    return train_plan(wire, root, data, recipe, make_plan(recipe, processors(wire.world, 2**30)))


def evaluate_all(root: Path, checkpoint: Path, sets: dict[str, tuple[Recipe, Path]]) -> dict[str, Path]:
    wire = Wire()
    return {
        name: evaluate(wire, root, recipe, data, checkpoint, Evaluation("train", "files", root / f"{name}.parquet"))
        for name, (recipe, data) in sets.items()
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path, Path]:
    """A recipe, its prepared data, a checkpoint."""
    root = tmp_path_factory.mktemp("trained")
    recipe = recipe_of(write(root / "train.csv", 200, labelled=True, seed=1))
    data = prepare(recipe, root)
    return recipe, data, run_ranks(2, train, root, recipe, data)[0]


@pytest.fixture(scope="module")
def sets(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Recipe, Path]]:
    """Other files, labelled and not, prepared as the trained one was."""
    root, (_, trained_on, _) = tmp_path_factory.mktemp("sets"), trained
    recipes = {
        f"{name}{'' if labelled else '_unlabelled'}": recipe_of(
            write(root / f"{name}{labelled}.csv", rows, labelled=labelled, seed=rows)
        )
        for name, rows in SIZES.items()
        for labelled in (True, False)
    }
    return {name: (recipe, prepare(recipe, root, trained_on=trained_on)) for name, recipe in recipes.items()}


@pytest.fixture(scope="module", params=[1, 2, 3])
def runs(
    request: Any, trained: Any, sets: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Path]]:
    """Where the scores lie, and the evaluation runs, for a number of ranks."""
    root = tmp_path_factory.mktemp("runs")
    return root, run_ranks(request.param, evaluate_all, root, trained[2], sets)[0]


def reference_logits(trained: tuple[Recipe, Path, Path], data: Path) -> torch.Tensor:
    recipe, _, checkpoint = trained
    reference, tensors = Reference(recipe, dense_dim=1), tensors_of(checkpoint)
    reference.tables = {name: tensors[f"table/{name}/weight"] for name in recipe.tables}
    reference.model.load_state_dict(
        {name.removeprefix("dense/"): t for name, t in tensors.items() if name.startswith("dense/")}
    )
    return reference.predict(whole(data))


@pytest.mark.parametrize("name", [*SIZES, *(f"{name}_unlabelled" for name in SIZES)])
def test_scores_are_those_of_plain_torch_in_row_order(name: str, runs: Any, trained: Any, sets: Any) -> None:
    root, data = runs[0], sets[name][1]
    table = parquet.read_table(root / f"{name}.parquet")
    expected = torch.sigmoid(reference_logits(trained, data)).tolist()
    assert table.column("score").to_pylist() == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) > len(expected) / 2  # a wrong order would show
    labels = table.column("label").to_pylist()
    if name.endswith("unlabelled"):
        assert labels == [None] * len(expected)
    else:
        users = (Path(sets[name][0].data.files[0]).read_text().splitlines())[1:]
        assert labels == [int(row[0]) for row in users]


@pytest.mark.parametrize("name", SIZES)
def test_metrics_are_of_the_labelled_rows(name: str, runs: Any, trained: Any, sets: Any) -> None:
    run, data = RunPaths(runs[1][name]), sets[name][1]
    (record,) = read_records(run)
    expected = binary_metrics(reference_logits(trained, data).numpy(), whole(data).labels)
    assert (record["split"], record["rows"], record["final"]) == ("files", SIZES[name], True)
    assert record["loss"] == pytest.approx(expected.loss, rel=1e-5)
    assert record["auc"] == pytest.approx(expected.auc, abs=0.01)  # ties may part


def test_of_unlabelled_rows_there_are_scores_alone(runs: Any) -> None:
    run = RunPaths(runs[1]["whole_unlabelled"])
    assert read_records(run) == []
    assert [event["event"] for event in read_events(run.attempt(1))][-1] == "finished"
