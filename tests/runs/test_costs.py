"""What a step took, beside what was predicted."""

import json
from pathlib import Path

import pytest

from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.costs import Costs, read_costs
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import append_record

STEP = {"kind": "step", "step": 10, "epoch": 0, "row": 0}


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return create_run(tmp_path, "clicks", None, "0" * 12)


def begin(run: RunPaths, predicted: object = None) -> None:
    attempt = claim_attempt(run)
    attempt.job.write_text(json.dumps({"version": 1, **({"predicted": predicted} if predicted else {})}))
    append_event(attempt, "worker_started", rank=0, rss_bytes=300)
    append_event(attempt, "worker_started", rank=1, rss_bytes=310)
    for step_ms, held in ((90.0, 1000), (20.0, 1510), (21.0, 1500)):
        append_record(attempt, **STEP, step_ms=step_ms, rss_bytes=held)


def test_a_step_is_the_median_and_memory_what_was_added(run: RunPaths) -> None:
    begin(run, {"step_s": 0.018, "memory_bytes": 1100})
    assert read_costs(run) == Costs(0.021, 0.018, 1200, 1100)


def test_the_newest_attempt_that_trained_counts(run: RunPaths) -> None:
    begin(run, {"step_s": 1.0, "memory_bytes": 1})
    begin(run, {"step_s": 2.0, "memory_bytes": 2})
    claim_attempt(run)
    assert read_costs(run).predicted_step_s == 2.0


def test_what_an_older_dlrmx_left_out_is_not_known(run: RunPaths) -> None:
    assert read_costs(run) == Costs()
    assert not read_costs(run).known
    begin(run)
    found = read_costs(run)
    assert (found.step_s, found.predicted_step_s, found.predicted_memory_bytes) == (0.021, None, None)
