"""The run of a job, created or taken up."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlrmx.errors import InputError
from dlrmx.launch.inputs import parse_recipe
from dlrmx.launch.opening import attempts_of, open_run
from dlrmx.recipe.fingerprint import fingerprint
from dlrmx.runs.claim import claim_attempt
from dlrmx.runs.run_file import read_run, update_run
from fake_job import make_job


def test_a_run_is_created_once_and_then_taken_up(tmp_path: Path) -> None:
    spec = make_job(tmp_path, {}).spec
    recipe = parse_recipe(spec.recipe)
    run = open_run(spec, recipe)
    assert (run.dir, read_run(run)["fingerprint"]) == (Path(spec.root) / spec.run, fingerprint(recipe))
    created = read_run(run)["created"]
    assert read_run(open_run(spec, recipe))["created"] == created


def test_another_recipes_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    spec = make_job(tmp_path, {}).spec
    run = open_run(spec, parse_recipe(spec.recipe))
    claim_attempt(run).recipe.write_text(spec.recipe)
    other = make_job(tmp_path, {}, settings=["train.batch=32"]).spec
    with pytest.raises(InputError, match=r"is of another recipe\n.*\n    train.batch: 16 -> 32"):
        open_run(other, parse_recipe(other.recipe))
    update_run(run, fingerprint="0" * 12)  # as an older dlrmx, of fewer settings, had it: all that differ have defaults
    open_run(spec, parse_recipe(spec.recipe))


def test_the_attempts_of_a_job_are_those_after_the_ones_it_found(tmp_path: Path) -> None:
    spec = make_job(tmp_path, {}).spec
    run = open_run(spec, parse_recipe(spec.recipe))
    first, second = claim_attempt(run), claim_attempt(run)
    assert attempts_of(spec, run) == [first, second]
    assert attempts_of(replace(spec, resume={"from_step": None, "after_attempt": 1}), run) == [second]
