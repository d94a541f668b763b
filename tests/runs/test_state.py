from pathlib import Path

import pytest

from dlrmx.errors import UnknownRun
from dlrmx.runs.claim import claim_attempt, create_run, hold, request_stop
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import append_record
from dlrmx.runs.run_file import update_run
from dlrmx.runs.state import run_state


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return create_run(tmp_path, "ctr", None, "f" * 12)


def test_a_new_run_is_created(run: RunPaths) -> None:
    state = run_state(run)
    assert (state.name, state.recipe, state.state, state.attempt) == ("ctr-1", "ctr", "created", 0)
    assert not state.ended
    assert (state.step, state.checkpoint, state.first_cause) == (None, None, None)


def test_a_held_run_is_running_and_then_stopping(run: RunPaths) -> None:
    attempt = claim_attempt(run)
    append_event(attempt, "phase", phase="start")
    append_event(attempt, "begin", step=20, epoch=0, row=0, total_steps=90)
    append_event(attempt, "phase", phase="train")
    update_run(run, state="running", attempt=1)
    with hold(run):
        state = run_state(run)
        assert (state.state, state.phase, state.step, state.total_steps) == ("running", "train", 20, 90)
        append_record(attempt, kind="step", step=30)
        append_event(attempt, "save_failed", step=25, reason="disk full")
        request_stop(attempt, "me")
        state = run_state(run)
        assert (state.state, state.step, state.saves_failed) == ("stopping", 30, 1)


def test_a_run_whose_node_process_is_gone_is_lost(run: RunPaths) -> None:
    append_event(claim_attempt(run), "begin", step=4)
    update_run(run, state="running", attempt=1)
    state = run_state(run)
    assert state.state == "lost"
    assert state.ended
    assert state.first_cause
    assert state.first_cause.cause == "lost"


@pytest.mark.parametrize(("recorded", "code"), [("done", 0), ("stopped", 75), ("failed", 1)])
def test_an_ended_run_is_what_it_wrote(run: RunPaths, recorded: str, code: int) -> None:
    attempt = claim_attempt(run)
    append_event(attempt, "failed", rank=1, step=5, cause="NaN", message="", primary=True)
    append_event(attempt, "attempt_ended", outcome="failed", step=5)
    update_run(run, state=recorded, exit_code=code, reason="said why")
    state = run_state(run)
    assert (state.state, state.exit_code, state.reason) == (recorded, code, "said why")
    assert (state.first_cause is not None) == (recorded == "failed")


def test_a_live_run_tells_why_its_earlier_attempt_failed(run: RunPaths) -> None:
    first = claim_attempt(run)
    append_event(first, "failed", rank=1, step=5, cause="killed", message="", primary=True)
    claim_attempt(run)
    update_run(run, state="running", attempt=2)
    with hold(run):
        state = run_state(run)
    assert state.attempt == 2
    assert state.first_cause
    assert state.first_cause.rank == 1


def test_the_newest_published_checkpoint_counts(run: RunPaths) -> None:
    for name in ("step-00000010", "step-00000200", ".step-00000300.attempt-0001", "aside", "step-x"):
        (run.checkpoints / name).mkdir(parents=True)
    assert run_state(run).checkpoint == 200


def test_no_run_no_state(tmp_path: Path) -> None:
    with pytest.raises(UnknownRun):
        run_state(RunPaths(tmp_path / "none"))
