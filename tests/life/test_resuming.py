"""Going on, by hand: two at once, from an earlier step, on other workers, past a damaged checkpoint, from weights."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dlrmx.checkpoint.read import open_checkpoint
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.lines import Line
from dlrmx.runs.records import read_records
from living import House, events, job, make_house, steps_saved, wait_for
from training import differing, tensors_of

TWENTY, THIRTY = "train.stop.steps=20", "train.stop.steps=30"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """With two equal runs of 20 steps, which ran at the same time."""
    house = make_house(tmp_path_factory.mktemp("house"))
    first, second = house.train("first", TWENTY), house.train("second", TWENTY)
    assert (first.wait(300), second.wait(300)) == (0, 0)
    yield house
    house.kill_all()


def records(run: RunPaths, kind: str) -> list[Line]:
    return [record for record in read_records(run) if record["kind"] == kind]


def test_two_runs_at_once_give_the_same_bits(house: House) -> None:
    left, right = (house.run(name) for name in ("first", "second"))
    assert differing(left.checkpoint(20), right.checkpoint(20)) == []
    assert [record["loss"] for record in records(left, "step")] == [record["loss"] for record in records(right, "step")]


def test_of_two_that_resume_one_run_one_is_refused_and_from_an_earlier_step_it_ends_the_same(house: House) -> None:
    first, second = house.run("first"), house.run("second")
    # One run goes back to step 10 and on to 30; the other goes straight on, driven by whoever comes first of two.
    back = house.start("resume", "first", "--from", "10", "-s", THIRTY)
    rivals = [house.start("resume", "second", "-s", THIRTY) for _ in range(2)]
    wait_for(lambda: events(second, 2, "begin") if len(second.attempts()) > 1 else None)
    late = house.execute("resume", "second", "-s", THIRTY, expect=2)
    assert "error: run second is running already" in house.stderr(late)
    assert sorted(rival.wait(300) for rival in rivals) == [0, 2]
    assert len(second.attempts()) == 2
    refused = next(rival for rival in rivals if rival.returncode == 2)
    assert "error: run second is running already" in house.stderr(refused)
    assert back.wait(300) == 0
    assert job(first.attempt(2))["from_step"] == 10
    assert first.checkpoint(20).is_dir()
    assert first.aside_checkpoint(20, 2).is_dir()
    assert differing(first.aside_checkpoint(20, 2), first.checkpoint(20)) == []
    assert differing(first.checkpoint(30), second.checkpoint(30)) == []


def test_on_three_workers_and_past_a_damaged_checkpoint_the_losses_are_the_same(house: House) -> None:
    first, second = house.run("first"), house.run("second")
    damage(next(first.checkpoint(30).glob("rank-*")))
    moved = house.start("resume", "first", "-s", "cluster.workers_per_node=3", "-s", "train.stop.steps=35")
    house.execute("resume", "second", "-s", "train.stop.steps=35")
    assert moved.wait(300) == 0, house.stderr(moved)
    given = job(first.attempt(3))
    assert (given["world"], given["from_step"]) == (3, 20)
    pairs = list(zip(records(first, "step"), records(second, "step"), strict=True))
    assert [left["step"] for left, _ in pairs] == list(range(1, 36))
    for left, right in pairs:
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-5), left["step"]
    # The damaged one was not what was lost: it has been trained and saved again, and is good now.
    assert steps_saved(first)[-1] == 35
    house.execute("checkpoints", "verify", "first")


def damage(file: Path) -> None:
    """Flip one bit in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_init_from_takes_the_weights_along_and_nothing_else(house: House) -> None:
    """All training rows are one batch: the loss of the first step is that of the weights it began with."""
    source = house.run("second").checkpoint(steps_saved(house.run("second"))[-1])
    whole = ["train.batch=20000", "train.stop.steps=1", "train.init_from=second"]
    assert house.train("fresh", *whole).wait(300) == 0
    house.execute("evaluate", source, "--split", "train")
    (evaluated,) = records(house.run("second-eval-1"), "evaluation")
    assert [event["phase"] for event in events(house.run("second-eval-1"), 1, "phase")][-1] == "evaluate"
    house.execute("resume", "second-eval-1", expect=2)  # it would train
    (step,) = records(house.run("fresh"), "step")
    assert step["step"] == 1
    assert step["loss"] == pytest.approx(evaluated["loss"], rel=1e-5)
    assert step["auc"] == pytest.approx(evaluated["auc"], rel=1e-5)
    before, after = tensors_of(source), tensors_of(house.run("fresh").checkpoint(1))
    for name in ("item", "page", "user"):
        weight, sums = f"table/{name}/weight", f"table/{name}/adagrad.sum"
        # Adagrad's first step from sums of zero: sums are squared gradients, each weight moves by lr g / (|g| + eps).
        gradient = after[sums].double().sqrt()
        moved = (after[weight].double() - before[weight].double()).abs()
        torch.testing.assert_close(moved, 0.05 * gradient / (gradient + 1e-8), rtol=1e-3, atol=1e-5)
        assert before[sums].max() > after[sums].max() > 0, "a sum that went on would only have grown"
    with open_checkpoint(house.run("fresh").checkpoint(1)) as stored:
        assert (stored.state["step"], stored.state["epoch"], stored.state["row"]) == (1, 1, 0)


def test_weights_of_another_shape_are_refused_by_name_and_not_tried_again(house: House) -> None:
    """Table item of `second` has 1,000 rows; nothing of it is taken or left out in silence."""
    launcher = house.train("grown", "train.init_from=second", "tables.item.rows=1001", TWENTY)
    assert launcher.wait(300) == 2
    assert len(house.run("grown").attempts()) == 1
    first = house.stderr(launcher).partition("error: ")[2].splitlines()[0]
    assert first.endswith("table item has 1,000 rows of dim 64, the recipe 1,001 of dim 64")
    assert steps_saved(house.run("grown")) == []
    refused = house.execute("resume", "second", "-s", "tables.item.rows=1001", expect=2)
    assert "a resume cannot change tables.item.rows: 1000 -> 1001" in house.stderr(refused)
