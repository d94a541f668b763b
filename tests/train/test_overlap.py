"""Training with what travels under what computes ends as training that waits for each exchange, in every bit."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dlrmx.data.prepare import prepare
from dlrmx.parallel.wire import Wire
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import read_records
from dlrmx.train.session import Task
from dlrmx.train.step import ask
from ranks import run_ranks
from sharding_cases import RANKS_PER_NODE
from training import differing, make_recipe, run_session

STEPS = 20
WORLDS = (1, 2, 3, 4)
EXCHANGES: dict[int, dict[str, Any]] = {
    1: {},
    2: {"chunks": 3},
    3: {"forward": "bf16"},
    4: {"chunks": 2, "forward": "bf16"},
}
STOP_AT_CALL = 6


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(make_recipe(STEPS), tmp_path_factory.mktemp("data"))


def unsteady(rank: int) -> Callable[..., Any]:
    """`ask`, by ranks that are late in turn."""
    rng = np.random.default_rng(rank)

    def late(*args: Any, **kwargs: Any) -> Any:
        time.sleep(rng.uniform(0, 0.005))
        return ask(*args, **kwargs)

    return late


def run_both(root: Path, data: Path) -> dict[bool, Path]:
    """The checkpoints of a training with overlap, in several messages, and of one without."""
    found = {}
    for overlap in (True, False):
        wire = Wire(RANKS_PER_NODE, overlap=overlap, messages=5 if overlap else 1)
        kind = "mix_by_node" if wire.world == 4 else "mix"
        recipe = make_recipe(STEPS, exchange={"overlap": overlap, **EXCHANGES[wire.world]})
        with patch("dlrmx.train.loop.ask", unsteady(wire.rank)):
            found[overlap] = run_session(wire, root, data, recipe, kind=kind)
    return found


@pytest.mark.parametrize("world", WORLDS)
def test_both_end_alike_in_every_bit(tmp_path: Path, data: Path, world: int) -> None:
    found = run_ranks(world, run_both, tmp_path, data)[0]
    assert differing(found[True], found[False]) == []
    losses = [
        [(record["step"], record["loss"]) for record in read_records(RunPaths(found[overlap].parent.parent))]
        for overlap in (True, False)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 7 + 3  # a record each three steps and at the end; evaluations at 7, 14 and the end


def stopped_and_resumed(root: Path, data: Path) -> tuple[list[str], Path, Path]:
    """The checkpoints that a run left which was stopped in mid-step, it resumed, and a run that never stopped."""
    wire, calls = Wire(), 0

    def stop_asked(task: Task) -> bool:
        nonlocal calls
        calls += 1
        return calls >= STOP_AT_CALL

    recipe = make_recipe(STEPS, exchange={"chunks": 2, "threshold": {"forward": {"sparsity": 0.5, "every": 4}}})
    with patch.object(Task, "stop_asked", stop_asked):
        middle = run_session(wire, root, data, recipe)
    left = sorted(path.name for path in middle.parent.glob("step-*"))
    resumed = run_session(wire, root, data, recipe, checkpoint=middle)
    return left, resumed, run_session(wire, root, data, recipe)


def test_a_stop_is_heard_by_all_at_one_step_and_the_resume_goes_on_in_every_bit(tmp_path: Path, data: Path) -> None:
    ranks = run_ranks(2, stopped_and_resumed, tmp_path, data)
    # The sixth step is asked for while the fifth computes: rank 0 sees the request then, and all stop after the sixth.
    assert [left for left, _, _ in ranks] == [[f"step-{STOP_AT_CALL:08}"]] * 2
    _, resumed, unbroken = ranks[0]
    assert differing(resumed, unbroken) == []


def saved_by_the_clock(root: Path, data: Path) -> list[str]:
    recipe = make_recipe(6, checkpoint={"every": {"minutes": 1e-9}, "keep": 9}, evaluate={})
    last = run_session(Wire(), root, data, recipe)
    return sorted(path.name for path in last.parent.glob("step-*"))


def test_a_save_that_is_due_is_made_once(tmp_path: Path, data: Path) -> None:
    """Asked for with the counts of one step, it is not asked for again before it was made."""
    found = run_ranks(2, saved_by_the_clock, tmp_path, data)[0]
    assert found == [f"step-{step:08}" for step in (1, 3, 5, 6)]
