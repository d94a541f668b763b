"""What is said of a run that failed."""

from dlrmx.runs.claim import claim_attempt
from dlrmx.runs.events import append_event
from dlrmx.runs.records import append_record
from dlrmx.runs.state import run_state
from dlrmx_cli.failure import failure_text
from dlrmx_cli.summary import status_text
from scripted import FAILED, MakeRun
from small_checkpoint import save_checkpoint

LATER = {"event": "failed", "rank": 0, "step": 7, "cause": "PeerStopped", "message": "rank 1", "primary": False}


def test_a_failure_begins_with_its_first_cause(make_run: MakeRun) -> None:
    run = make_run("failed", LATER, FAILED, exit_code=1)
    run.attempt(1).node_log(0).write_text("".join(f"line {n}\n" for n in range(100)))
    lines = failure_text(run, run_state(run)).splitlines()
    assert lines[0].startswith("clicks-1 failed: rank 1 on ")
    assert lines[0].endswith("at step 7: NonFinite: loss is NaN")
    assert "  | line 99" in lines
    assert "  | line 84" not in lines
    recipe = run.attempt(1).recipe
    assert lines[1].startswith("NaN or infinity: ")
    assert lines[-4:] == [
        "newest good checkpoint: none yet",
        "what to try:",
        f"  dlrmx data show {recipe}    (dense columns, and what was wrong with rows)",
        f"  dlrmx train {recipe} -s optimizer.dense.lr=LR",
    ]
    save_checkpoint(run, 5)
    with_weights = failure_text(run, run_state(run)).splitlines()[-1]
    assert with_weights == f"  dlrmx train {recipe} -s train.init_from=clicks-1 -s optimizer.dense.lr=LR"


def test_what_was_clamped_before_a_nan_is_told(make_run: MakeRun) -> None:
    run = make_run("failed", FAILED, exit_code=1)
    append_record(run.attempt(1), kind="step", step=6, rss_bytes=1, clamped={"vectors": 0, "dense": 19_616})
    told = failure_text(run, run_state(run)).splitlines()[1]
    assert told.endswith(". Up to step 6 numbers were too large for their wire format: dense 19,616")


def test_the_agents_words_do_not_hide_the_workers(make_run: MakeRun) -> None:
    run = make_run("failed", FAILED, exit_code=1)
    agent = "E1130 12:42 29607 api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n"
    run.attempt(1).node_log(0).write_text("the worker's last words\n" + agent + 50 * "Traceback\n")
    tail = [line for line in failure_text(run, run_state(run)).splitlines() if line.startswith("  |")]
    assert tail == ["  | the worker's last words"]


def test_a_failed_run_is_told_on_one_screen(make_run: MakeRun) -> None:
    """Attempt, node, rank and exception that came first; their kind; what failed before; what is left; what to try."""
    disk = {**FAILED, "cause": "SaveError", "message": "No space left on device (ENOSPC)", "host": "n0"}
    run = make_run("failed", disk, exit_code=1, reason="job 12: PREEMPTED: another job took its nodes")
    save_checkpoint(run, 5)
    save_checkpoint(run, 6)
    later = claim_attempt(run)
    append_event(later, "begin", step=5, total_steps=20)
    append_event(later, "failed", rank=3, step=6, cause="killed", message="killed by SIGKILL", primary=True, host="n1")
    next(run.checkpoint(6).glob("*.safetensors")).unlink()
    lines = status_text(run, run_state(run), None).splitlines()
    assert lines[:5] == [
        "clicks-1: failed  step 6 of 20  attempt 2",
        "first cause  attempt 2, rank 3 on n1 at step 6: killed by SIGKILL",
        "ended by     job 12: PREEMPTED: another job took its nodes",
        "diagnosis    preempted: its nodes were taken for other work, and its job was not started again",
        "earlier      attempt 1, rank 1 on n0 at step 7: SaveError: No space left on device (ENOSPC)",
    ]
    assert f"checkpoint   {run.checkpoint(5)}  (1 newer is damaged)" in lines
    assert lines[-2:] == ["what to try:", "  dlrmx resume clicks-1"]
    assert len(lines) < 24
