"""The planner's small models, trained by real ranks."""

from pathlib import Path
from typing import get_args

import pytest

from dlrmx.parallel.wire import Wire
from dlrmx.plan.samples import SAMPLES
from dlrmx.train import sample
from dlrmx.train.stages import Stage
from ranks import run_ranks


def of_small(folder: str) -> dict[str, dict[str, float]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "SAMPLES", {"small": SAMPLES["small"]})
        return sample.stage_seconds(Wire(), Path(folder))


def test_every_stage_of_a_step_is_timed_the_same_on_all_ranks(tmp_path: Path) -> None:
    first, second = run_ranks(2, of_small, str(tmp_path))
    assert first == second
    (stages,) = first.values()
    assert set(stages) == set(get_args(Stage))
    assert all(seconds >= 0 for seconds in stages.values())
    assert 1e-4 < sum(stages.values()) < 1
