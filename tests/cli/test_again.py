"""From a run to a recipe that goes on with it: what may be resumed, and with which changes."""

from pathlib import Path

import pytest

from dlrmx.errors import InputError
from dlrmx.recipe.load import read_frozen
from dlrmx.runs.claim import claim_attempt, hold
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx_cli import again, start
from scripted import Dlrmx, MakeRun, Play
from small_checkpoint import damage, save_checkpoint


def load(run: RunPaths, *overrides: str) -> object:
    return again.load_again(run, overrides, None, None)


def test_a_free_setting_may_change_at_a_resume(make_run: MakeRun) -> None:
    loaded = again.load_again(make_run("stopped"), ["optimizer.dense.lr=0.5"], None, None)
    assert loaded.recipe.optimizer.dense.lr == 0.5


def test_a_fixed_setting_may_not_and_the_error_names_it_and_the_way_out(make_run: MakeRun) -> None:
    with pytest.raises(InputError) as caught:
        load(make_run("stopped"), "train.batch=256", "seed=7", "optimizer.dense.lr=0.5")
    text = str(caught.value)
    assert "train.batch: 128 -> 256" in text
    assert "seed: 0 -> 7" in text
    assert "lr" not in text
    assert "train.init_from" in text


def test_a_live_run_is_not_resumed(make_run: MakeRun) -> None:
    run = make_run("running")
    with hold(run), pytest.raises(InputError, match="is running already"):
        load(run)


def test_a_run_that_is_done_is_resumed_only_to_go_further(make_run: MakeRun) -> None:
    run = make_run("done")
    with pytest.raises(InputError, match=r"is done already \(steps: 20\)") as caught:
        load(run)
    assert "-s train.stop.steps=40" in str(caught.value)
    with pytest.raises(InputError, match=r"is done already \(steps: 20\)") as caught:
        load(run, "train.stop.steps=19")
    assert "-s train.stop.steps=40" in str(caught.value)
    load(run, "train.stop.steps=40")


def test_epochs_are_resumed_for_steps_only_to_go_further(make_run: MakeRun) -> None:
    run = make_run("done")
    recipe = run.attempt(1).recipe
    recipe.write_text(recipe.read_text().replace("stop: {steps: 20}", "stop: {epochs: 2}"))
    assert "epochs: 2" in recipe.read_text()
    with pytest.raises(InputError, match=r"is done already \(epochs: 2\)"):
        load(run, "train.stop.steps=20")
    load(run, "train.stop.steps=21")
    append_event(run.attempt(1), "finished", step=30)  # as where it was begun with more epochs
    with pytest.raises(InputError, match="is done already"):
        load(run, "train.stop.steps=30")
    load(run, "train.stop.steps=31")


def test_a_run_that_is_done_may_go_back(dlrmx: Dlrmx, make_run: MakeRun, fake_node: Play) -> None:
    """As where its last checkpoint is damaged."""
    run = make_run("done")
    save_checkpoint(run, 10)
    damage(save_checkpoint(run, 20))
    done = dlrmx("resume", "--from", "10", "-s", fake_node("done", events=[{"event": "finished", "step": 20}]))
    assert done.exit_code == 0, done.output
    assert len(run.attempts()) == 2


def test_an_evaluation_is_not_resumed(make_run: MakeRun) -> None:
    run = make_run("failed", evaluates="/runs/clicks-7/checkpoints/step-00000020")
    with pytest.raises(InputError, match="is an evaluation") as caught:
        load(run)
    assert "dlrmx resume /runs/clicks-7" in str(caught.value)


def test_a_run_that_never_began_has_nothing_to_resume(make_run: MakeRun) -> None:
    run = make_run("failed")
    run.attempt(1).recipe.unlink()
    with pytest.raises(InputError, match="never began"):
        load(run)


def test_an_attempt_that_died_before_it_had_a_recipe_is_passed_over(make_run: MakeRun) -> None:
    run = make_run("lost")
    claim_attempt(run)
    assert again.load_again(run, [], None, None).recipe == read_frozen(run.attempt(1).recipe)


def test_the_root_is_where_the_run_lies_now(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("stopped")
    moved = tmp_path / "a: b"  # a name that YAML would read as a mapping
    run.dir.parent.rename(moved)
    assert again.load_again(RunPaths(moved / run.name), [], None, None).profile.root == str(moved)


def test_a_job_remembers_the_profile_it_ran_on(recipe_file: Path, make_run: MakeRun) -> None:
    loaded = start.load(str(recipe_file), ["cluster.workers_per_node=3"])
    run = make_run("stopped")
    run.attempt(1).recipe.write_text(start.job(loaded, run.name, planned=None).recipe)
    assert again.load_again(run, [], None, None).profile.workers_per_node == 3
    assert again.load_again(run, ["cluster.workers_per_node=2"], None, None).profile.workers_per_node == 2


def test_a_run_that_never_saved_may_begin_anew(make_run: MakeRun) -> None:
    run = make_run("failed")
    again.check_checkpoint(run, None, again.newest_recipe(run))


def test_no_good_checkpoint_is_an_error_with_the_reason_for_each(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run("stopped")
    recipe = again.newest_recipe(run)
    for step in (10, 20):
        damage(save_checkpoint(run, step))
    with pytest.raises(InputError) as caught:
        again.check_checkpoint(run, None, recipe)
    assert "step-00000010" in str(caught.value)
    assert "step-00000020" in str(caught.value)
    save_checkpoint(run, 5)
    again.check_checkpoint(run, None, recipe)  # an older good one will do
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in told] == ["passed over"] * 2
    assert "step-00000020" in told[0]


def test_the_step_asked_for_must_be_there_and_good(make_run: MakeRun) -> None:
    run = make_run("stopped")
    recipe = again.newest_recipe(run)
    save_checkpoint(run, 10)
    damage(save_checkpoint(run, 20))
    again.check_checkpoint(run, 10, recipe)
    with pytest.raises(InputError, match="it has: 10, 20"):
        again.check_checkpoint(run, 15, recipe)
    with pytest.raises(InputError, match="damaged"):
        again.check_checkpoint(run, 20, recipe)


def test_a_checkpoint_knows_its_recipe_by_its_run(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("stopped")
    path = save_checkpoint(run, 10)
    loaded = again.load_for_checkpoint(path)
    assert loaded.recipe == read_frozen(run.attempt(1).recipe)
    assert loaded.profile.root == str(run.dir.parent)
    stray = path.rename(tmp_path / "stray")
    with pytest.raises(InputError, match="the recipe that wrote it is not there"):
        again.load_for_checkpoint(stray)


def test_resume_refuses_before_anything_starts(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run("done")
    before = sorted(path for path in run.dir.rglob("*"))
    assert dlrmx("resume").exit_code == 2
    assert dlrmx("resume", "-s", "train.batch=256", "-s", "train.stop.steps=40").exit_code == 2
    assert dlrmx("resume", "--from", "7", "-s", "train.stop.steps=40").exit_code == 2
    assert sorted(path for path in run.dir.rglob("*")) == before


@pytest.mark.parametrize(
    ("setting", "from_step", "allowed"),
    [
        ("train.stop.steps=9", None, False),
        ("train.stop.steps=10", None, True),  # it ends there, with its evaluation
        ("train.stop.steps=9", 5, True),
        ("train.stop.steps=4", 5, False),
        ("train.stop={epochs: 1}", None, False),  # step 10 is in the second epoch, as is step 5
        ("train.stop={epochs: 2}", None, True),
    ],
)
def test_training_cannot_end_before_what_it_has_reached(
    setting: str, from_step: int | None, allowed: bool, make_run: MakeRun
) -> None:
    run = make_run("stopped")
    for step in (5, 10):
        save_checkpoint(run, step, epoch=1)
    recipe = again.load_again(run, [setting], None, None, from_step).recipe
    if allowed:
        again.check_checkpoint(run, from_step, recipe)
        return
    with pytest.raises(InputError, match="training would end before step"):
        again.check_checkpoint(run, from_step, recipe)
