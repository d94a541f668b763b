"""When checkpoints are written and kept, and what a failed save does; one process, the real writer."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dlrmx.checkpoint.retain import list_checkpoints
from dlrmx.checkpoint.write import SaveError
from dlrmx.parallel.wire import Wire
from dlrmx.plan.planner import make_plan
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.events import read_events
from dlrmx.train.build import build_parts
from dlrmx.train.metrics import Metrics
from dlrmx.train.saver import Saver
from dlrmx.train.session import Clock, Session, Task
from dlrmx.train.stream import Position
from plan_recipes import processors
from training import make_recipe


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    store = tmp_path_factory.mktemp("gloo") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield Wire()
    dist.destroy_process_group()


def recipe_with(**checkpoint: Any) -> Recipe:
    raw = make_recipe(100, dense="sgd").model_dump()
    return Recipe.model_validate({**raw, "checkpoint": {**raw["checkpoint"], **checkpoint}})


def saver_of(wire: Wire, root: Path, recipe: Recipe) -> Saver:
    run = create_run(root, "odd", None, "fingerprint")
    plan = make_plan(recipe, processors(1, 2**30))
    task = Task(run, claim_attempt(run), recipe, plan, root, None, None)
    parts = build_parts(recipe, plan, wire=wire, dense_dim=2, device=torch.device("cpu"))
    parts.embeddings.initialise(0)
    return Saver(Session(task, parts, Clock()), order_seed=0, saved_step=-1)


def task_of(saver: Saver) -> Task:
    return saver._session.task


def steps_of(saver: Saver) -> list[int]:
    return [info.step for info in list_checkpoints(task_of(saver).run) if info.complete]


def metrics(ne: float) -> Metrics:
    return Metrics(rows=10, loss=ne / 2, ne=ne, auc=None, accuracy=0.5, calibration=1.0, label_mean=0.5)


def test_steps_are_due_at_their_multiples(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with(every={"steps": 5}))
    assert [step for step in range(1, 16) if saver.steps_due(step)] == [5, 10, 15]
    assert not saver.minutes_due()


def test_minutes_are_due_after_so_long_and_begin_anew_with_a_save(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("dlrmx.train.saver.time.monotonic", lambda: now)
    saver = saver_of(wire, tmp_path, recipe_with(every={"minutes": 2}))
    assert not saver.minutes_due()
    now = 1120.0
    assert saver.minutes_due()
    assert not saver.steps_due(5)
    saver.save(Position(7))
    assert not saver.minutes_due()


def test_the_newest_and_the_best_stay(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with(keep=2, best={"metric": "validation.ne"}))
    better = []
    for step, ne in ((1, 0.9), (2, 0.7), (3, 0.8), (4, 0.75), (5, 0.72)):
        better.append(saver.offer(Position(step), "validation", metrics(ne)))
        saver.save(Position(step))
    assert better == [True, True, False, False, False]
    assert steps_of(saver) == [2, 4, 5]


def test_the_best_is_remembered_by_the_next_attempt(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with(best={"metric": "validation.ne"}))
    saver.offer(Position(1), "validation", metrics(0.7))
    saver.save(Position(1))
    again = Saver(saver._session, order_seed=0, saved_step=1)
    assert not again.offer(Position(2), "validation", metrics(0.71))
    assert again.offer(Position(3), "validation", metrics(0.69))


def test_another_splits_metric_is_not_the_best(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with(best={"metric": "validation.ne"}))
    assert not saver.offer(Position(1), "test", metrics(0.1))
    assert not saver.offer(Position(1), "validation", None)


def test_a_step_is_saved_once(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with())
    for _ in range(2):
        saver.save(Position(3))
    assert len(read_events(task_of(saver).attempt, "saved")) == 1


def test_a_failed_save_is_counted_and_training_goes_on(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with(on_error="continue"))
    saver.save(Position(1))
    block(saver)
    saver.save(Position(2))
    failed = read_events(task_of(saver).attempt, "save_failed")
    assert [event["step"] for event in failed] == [2]
    assert "rank 0" in failed[0]["reason"]
    unblock(saver)
    saver.save(Position(2))
    assert steps_of(saver) == [1, 2]


def test_a_failed_save_stops_where_the_recipe_says_so(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with(on_error="stop"))
    saver.save(Position(1))
    block(saver)
    with pytest.raises(SaveError, match="step 2 was not saved"):
        saver.save(Position(2))
    unblock(saver)
    assert steps_of(saver) == [1]


def test_a_worker_that_outlived_its_attempt_ends(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with(on_error="continue"))
    claim_attempt(task_of(saver).run)
    with pytest.raises(SaveError, match="attempt 2 has begun"):
        saver.save(Position(1))
    assert steps_of(saver) == []


def test_what_a_killed_save_left_goes_when_the_next_attempt_begins(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with())
    saver.save(Position(1))
    run = task_of(saver).run
    left = run.partial_checkpoint(2, 1)
    left.mkdir()
    (left / "rank-0000.safetensors").write_bytes(b"half")
    task = Task(run, claim_attempt(run), task_of(saver).recipe, task_of(saver).plan, tmp_path, None, None)
    Saver(Session(task, saver._session.parts, Clock()), order_seed=0, saved_step=1)
    assert not left.exists()
    assert steps_of(saver) == [1]


def test_the_state_says_where_to_go_on(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with())
    saver.save(Position(step=9, epoch=1, row=257))
    manifest = json.loads((task_of(saver).run.checkpoint(9) / "manifest.json").read_text())["manifest"]
    state = manifest["state"]
    assert (state["step"], state["epoch"], state["row"], state["order_seed"]) == (9, 1, 257, 0)
    assert state["features"] == ["a", "b", "c", "d", "e"]


def block(saver: Saver) -> None:
    """A file where the folder of checkpoints must be: even root cannot write there."""
    folder = task_of(saver).run.checkpoints
    folder.rename(folder.with_name("moved"))
    folder.write_text("")


def unblock(saver: Saver) -> None:
    folder = task_of(saver).run.checkpoints
    folder.unlink()
    shutil.move(folder.with_name("moved"), folder)


def test_a_recipe_may_want_no_checkpoints(wire: Wire, tmp_path: Path) -> None:
    saver = saver_of(wire, tmp_path, recipe_with(save=False, every=None))
    saver.save(Position(3, 0, 30), ends=True)
    assert steps_of(saver) == []
    assert read_events(task_of(saver).attempt, "saving", "saved") == []
