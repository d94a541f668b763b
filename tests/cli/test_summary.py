"""What is said of a run at rest."""

import pytest

from dlrmx.runs.claim import claim_attempt, hold, request_stop
from dlrmx.runs.events import append_event
from dlrmx.runs.state import run_state
from dlrmx_cli.failure import failure_text
from dlrmx_cli.summary import done_text, run_row, status_text, stopped_text
from scripted import EVALUATION, MakeRun
from small_checkpoint import save_checkpoint

FAILED = {"event": "failed", "rank": 1, "step": 7, "cause": "NonFinite", "message": "loss is NaN", "primary": True}
LATER = {"event": "failed", "rank": 0, "step": 7, "cause": "PeerStopped", "message": "rank 1", "primary": False}


def test_a_finished_run_shows_its_quality_its_checkpoint_and_what_comes_next(make_run: MakeRun) -> None:
    run = make_run("done", {"event": "finished", "step": 20})
    run.checkpoint(20).mkdir(parents=True)
    text = done_text(run, run_state(run), EVALUATION)
    for words in (
        "clicks-1 is done at step 20", "test: loss 0.4100  NE 0.7531 (planted optimum 0.7421)  AUC 0.8125",
        str(run.checkpoint(20)), "dlrmx report clicks-1", "dlrmx evaluate clicks-1",
    ):  # fmt: skip
        assert words in text, words


@pytest.mark.parametrize(("auc", "warned"), [(0.5, True), (0.504, True), (0.496, True), (0.51, False), (None, False)])
def test_an_auc_of_chance_is_not_passed_over(make_run: MakeRun, auc: float | None, warned: bool) -> None:
    run = make_run("done", {"event": "finished", "step": 20})
    evaluation = {**EVALUATION, "auc": auc}
    for text in (done_text(run, run_state(run), evaluation), status_text(run, run_state(run), evaluation)):
        assert ("this AUC is that of chance" in text) == warned


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
        f"  dlrmx train {recipe} -s train.init_from=clicks-1 -s optimizer.dense.lr=LR",
    ]


def test_the_agents_words_do_not_hide_the_workers(make_run: MakeRun) -> None:
    run = make_run("failed", FAILED, exit_code=1)
    agent = "E1130 12:42 29607 api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n"
    run.attempt(1).node_log(0).write_text("the worker's last words\n" + agent + 50 * "Traceback\n")
    tail = [line for line in failure_text(run, run_state(run)).splitlines() if line.startswith("  |")]
    assert tail == ["  | the worker's last words"]


def test_failed_saves_are_on_the_first_line(make_run: MakeRun) -> None:
    failure = {"event": "save_failed", "step": 10, "reason": "No space left on device"}
    run = make_run("stopped", failure, {**failure, "step": 15}, {"event": "stopped", "step": 16})
    lines = status_text(run, run_state(run), None).splitlines()
    assert lines[0] == "clicks-1: stopped, 2 saves FAILED  step 16 of 20  attempt 1"
    assert "step 15: No space left on device" in lines[1]


def test_a_status_without_anything_wrong_is_short(make_run: MakeRun) -> None:
    run = make_run("done", {"event": "finished", "step": 20})
    lines = status_text(run, run_state(run), EVALUATION).splitlines()
    assert lines[0] == "clicks-1: done  step 20 of 20  attempt 1"
    assert [line[:13].strip() for line in lines[1:]] == ["evaluation", "checkpoint", "path", "next", "", ""]
    assert [line[13:18] for line in lines[-3:]] == ["dlrmx"] * 3


def test_a_lost_run_names_its_cause_and_the_way_on(make_run: MakeRun) -> None:
    run = make_run("running")  # nobody holds its lock
    text = status_text(run, run_state(run), None)
    assert text.startswith("clicks-1: lost")
    assert "was killed" in text
    assert "dlrmx resume clicks-1" in text


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


def test_what_is_easily_missed_is_on_the_first_line_while_it_runs(make_run: MakeRun) -> None:
    lost = {**FAILED, "rank": None, "cause": "lost", "message": "node 1 of 2 was lost: its connection broke"}
    run = make_run("running", {"event": "saved", "step": 12}, {"event": "begin", "step": 15}, lost)
    later = claim_attempt(run)
    append_event(later, "begin", step=12, total_steps=20)
    append_event(later, "save_failed", step=14, reason="No space left on device")
    with hold(run):
        first = status_text(run, run_state(run), None).splitlines()[0]
    assert first == "clicks-1: running, 1 save FAILED, 3 steps repeated, 1 node lost  step 14 of 20  attempt 2"


def test_a_run_that_waits_says_for_what(make_run: MakeRun) -> None:
    run = make_run("created")
    assert "job          12: waits for Priority" in status_text(run, run_state(run), None, "12: waits for Priority")
    image = "ctr: image x:1 cannot be pulled (ErrImagePull): is its name right?"
    assert "diagnosis    bad image: " in status_text(run, run_state(run), None, image)


def test_an_evaluation_names_its_checkpoint_and_is_done_again_not_resumed(make_run: MakeRun) -> None:
    run = make_run(
        "failed", {**FAILED, "cause": "KeyError"}, exit_code=1, evaluates="/runs/clicks-7/checkpoints/step-00000020"
    )
    state = run_state(run)
    for text in (status_text(run, state, None), failure_text(run, state)):
        assert "dlrmx evaluate /runs/clicks-7/checkpoints/step-00000020" in text
        assert "resume" not in text
    assert "checkpoint " not in status_text(run, state, None)


def test_an_attempt_that_has_not_begun_stands_at_its_checkpoint(make_run: MakeRun) -> None:
    run = make_run("failed", FAILED)
    run.checkpoint(1200).mkdir(parents=True)
    claim_attempt(run)
    with hold(run):
        text = status_text(run, run_state(run), None)
    assert text.startswith("clicks-1: running  step 1,200  attempt 2\nbefore this  rank 1 on ")


def test_a_run_that_is_stopping_is_not_cancelled_again(make_run: MakeRun) -> None:
    run = make_run("running")
    with hold(run):
        request_stop(run.attempt(1), "a test")
        assert status_text(run, run_state(run), None).endswith("next         dlrmx watch clicks-1")


def test_how_to_go_on_after_a_stop(make_run: MakeRun) -> None:
    run = make_run("stopped", {"event": "stopped", "step": 12})
    assert stopped_text(run_state(run)) == "nothing was saved yet, resume with: dlrmx resume clicks-1"
    run.checkpoint(12).mkdir(parents=True)
    assert stopped_text(run_state(run)) == "saved at step 12, resume with: dlrmx resume clicks-1"


def test_a_row_per_run(make_run: MakeRun) -> None:
    run = make_run("done", name="mine")
    append_event(run.attempt(1), "finished", step=20)
    name, state, step, _, path = run_row(run_state(run))
    assert (name, state, step, path) == ("mine", "done", "20 of 20", str(run.dir))


def test_why_a_node_process_refused_is_told_where_it_began_no_attempt(make_run: MakeRun) -> None:
    run = make_run("created")
    run.launch_log.write_text("run clicks-1 is of another recipe\n")
    assert failure_text(run, run_state(run)).startswith("clicks-1 failed: run clicks-1 is of another recipe")
