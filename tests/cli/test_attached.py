"""train and resume with a node process that plays a script."""

from collections.abc import Callable
from pathlib import Path

from scripted import EVALUATION, STEP

Play = Callable[..., str]


def test_a_run_that_goes_well_prints_its_result(dlrmx, recipe_file: Path, fake_node: Play) -> None:
    python = fake_node("done", records=[STEP, EVALUATION], events=[{"event": "finished", "step": 20}])
    done = dlrmx("train", recipe_file, "-s", python)
    assert done.exit_code == 0, done.output
    print(done.stdout, done.stderr)
    assert 0
