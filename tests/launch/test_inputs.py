import json
from dataclasses import replace
from pathlib import Path

import pytest

from dlrmx import __version__
from dlrmx.checkpoint.manifest import CheckpointManifest, write_manifest
from dlrmx.data.order import ORDER
from dlrmx.errors import InputError
from dlrmx.launch.inputs import job_plan, parse_recipe, prepare_data, write_inputs
from dlrmx.launch.stopping import StopRequested
from dlrmx.plan.shards import Plan
from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import AttemptPaths
from fake_job import FakeJob, make_job


@pytest.fixture
def job(tmp_path: Path) -> FakeJob:
    job = make_job(tmp_path, {}, settings=["cluster.workers_per_node=3", "train.stop.steps=30"])
    create_run(Path(job.spec.root), "tiny", "tiny-1", "f" * 12)
    return job


def give(job: FakeJob, *, stop: bool = False) -> AttemptPaths:
    """Open an attempt and write its inputs."""
    attempt = claim_attempt(job.run)
    write_inputs(job.spec, parse_recipe(job.spec.recipe), job.profile, attempt, stop_asked=lambda: stop)
    return attempt


def save(job: FakeJob, step: int) -> Path:
    path = job.run.checkpoint(step)
    path.mkdir(parents=True)
    write_manifest(path, CheckpointManifest(step, 1, {"step": step}, {}, {}))
    return path


def test_an_attempt_is_given_recipe_plan_and_job(job: FakeJob) -> None:
    attempt = give(job)
    assert attempt.recipe.read_text() == job.spec.recipe
    plan = Plan.from_json(attempt.plan.read_text())
    given = json.loads(attempt.job.read_text())
    data = Path(given.pop("data"))
    assert data.parent == Path(job.spec.root) / "prepared"
    assert plan == job_plan(parse_recipe(job.spec.recipe), job.profile, data)
    assert (given["dlrmx"], given["world"], given["plan_hash"]) == (__version__, 3, plan.hash)
    assert (given["checkpoint"], given["from_step"], given["evaluate"]) == (None, 0, None)
    assert [event["phase"] for event in read_events(attempt, "phase")] == ["prepare", "plan"]
    # Prepared now: the same plan, and nothing left to do that could be stopped.
    assert json.loads(give(job, stop=True).job.read_text())["plan_hash"] == plan.hash


def test_each_node_prepares_its_share(job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("dlrmx.data.prepare.prepare", lambda *words, **more: asked.append(more))
    spec = replace(job.spec, profile={**job.spec.profile, "nodes": 3})
    prepare_data(spec, parse_recipe(spec.recipe), lambda what, done, total: None, node=2)
    assert [(more["node"], more["nodes"]) for more in asked] == [(2, 3)]


def test_preparation_can_be_stopped(job: FakeJob) -> None:
    with pytest.raises(StopRequested):
        give(job, stop=True)


def test_the_newest_good_checkpoint_is_taken(job: FakeJob) -> None:
    save(job, 10)
    good = save(job, 20)
    (save(job, 30) / "manifest.json").write_text("{}")
    given = json.loads(give(job).job.read_text())
    assert (given["checkpoint"], given["from_step"]) == (str(good), 20)


def test_a_resume_on_other_rows_is_refused(job: FakeJob) -> None:
    give(job)
    save(job, 10)
    again = claim_attempt(job.run)
    other = parse_recipe(job.spec.recipe.replace("rows: 200", "rows: 201"))
    with pytest.raises(InputError, match="training rows are not those"):
        write_inputs(job.spec, other, job.profile, again, stop_asked=lambda: False)
    assert json.loads(give(job).job.read_text())["from_step"] == 10  # the same rows


def test_a_resume_in_another_order_is_refused_by_name(job: FakeJob) -> None:
    first = give(job)
    save(job, 10)
    given = json.loads(first.job.read_text())
    first.job.write_text(json.dumps({**given, "order": "window-v1", "training_rows": "0" * 8}))
    with pytest.raises(InputError, match=f"began with rows in order window-v1, this dlrmx takes them in {ORDER}"):
        give(job)


def test_another_recipes_checkpoint_is_refused(job: FakeJob) -> None:
    path = job.run.checkpoint(10)
    path.mkdir(parents=True)
    write_manifest(path, CheckpointManifest(10, 1, {"step": 10, "fingerprint": "0" * 12}, {}, {}))
    with pytest.raises(InputError, match="was written by another recipe"):
        give(job)


def test_going_back_sets_later_ones_aside_once(job: FakeJob) -> None:
    first, later = save(job, 10), save(job, 20)
    back = job.again(resume={"from_step": 10, "after_attempt": 0})
    assert json.loads(give(back).job.read_text())["checkpoint"] == str(first)
    assert not later.exists()
    # The next attempt of the same job, a retry or a requeue, keeps what the first one reached.
    newer = save(job, 15)
    assert json.loads(give(back).job.read_text())["checkpoint"] == str(newer)


def test_going_back_to_what_is_not_there_or_not_good_changes_nothing(job: FakeJob) -> None:
    kept = save(job, 20)
    (save(job, 10) / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="no checkpoint at step 7"):
        give(job.again(resume={"from_step": 7, "after_attempt": 0}))
    with pytest.raises(InputError, match="step 10 is damaged"):
        give(job.again(resume={"from_step": 10, "after_attempt": 1}))
    assert kept.exists()


def test_an_evaluation_takes_the_checkpoint_it_names(job: FakeJob) -> None:
    path = save(job, 20)
    asked = {"checkpoint": str(path), "split": "test"}
    other = job.again(run="tiny-evaluation-1", evaluate=asked)
    create_run(Path(job.spec.root), "tiny", other.spec.run, "f" * 12)
    given = json.loads(give(other).job.read_text())
    assert (given["checkpoint"], given["from_step"], given["evaluate"]) == (str(path), 20, asked)


def test_another_plan_is_refused(job: FakeJob) -> None:
    with pytest.raises(InputError, match="the job asks for 0000"):
        give(job.again(plan_hash="0000"))


def test_an_end_before_what_the_checkpoint_has_reached_is_refused(job: FakeJob) -> None:
    recipe = parse_recipe(job.spec.recipe)
    assert recipe.train.stop.model_dump() == {"steps": 30}
    save(job, 30)
    give(job)
    save(job, 31)
    with pytest.raises(InputError, match="steps: 30: training would end before step 31, which step-00000031"):
        give(job)
