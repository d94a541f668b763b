"""What is said of a run at rest."""

import pytest

from dlrmx.runs.claim import claim_attempt, hold, request_stop
from dlrmx.runs.events import append_event
from dlrmx.runs.state import Job, run_state
from dlrmx_cli.failure import failure_text
from dlrmx_cli.summary import done_text, run_row, status_text, stopped_text
from scripted import EVALUATION, FAILED, MakeRun


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
    """And why it has to: what became of its newest attempt, with the nodes that were lost counted."""
    lost = {**FAILED, "rank": None, "cause": "lost", "message": "node 1 of 2 was lost: its connection broke"}
    noted = {"job": {"scheduler": "slurm", "app": "12"}, "cluster": "lab"}
    run = make_run(
        "created", lost, reason="n1: node 1 of 2 was lost\n    waits for its job to be started again", **noted
    )
    first, job, why, *rest = status_text(run, run_state(run), None).splitlines()
    assert first == "clicks-1: waiting, 1 node lost  step 7 of 20  attempt 1"
    assert job == "job          12 on lab"
    assert why == "before this  n1: node 1 of 2 was lost; waits for its job to be started again"
    assert rest[-2:] == ["next         dlrmx watch clicks-1", "             dlrmx cancel clicks-1"]
    said = Job("slurm", "12", "lab", "pending", "PENDING: waits for Priority")
    assert "job          12 on lab: PENDING: waits for Priority" in status_text(run, run_state(run, said), None)
    image = Job("kubernetes", "12", "", "pending", "ctr: image x:1 cannot be pulled (ErrImagePull): is its name right?")
    stuck = make_run("created", job={"scheduler": "kubernetes", "app": "12"})
    assert "diagnosis    bad image: " in status_text(stuck, run_state(stuck, image), None)


def test_processes_that_the_scheduler_ended_are_no_lost_nodes(make_run: MakeRun) -> None:
    lost = {**FAILED, "rank": None, "cause": "lost", "message": "node 1 of 2 was lost: its connection broke"}
    run = make_run(
        "created", {"event": "stop_requested", "by": "SIGTERM"}, lost, job={"scheduler": "slurm", "app": "7"}
    )
    assert status_text(run, run_state(run), None).startswith("clicks-1: waiting  step 7")


def test_a_run_that_has_ended_names_its_job_and_nodes(make_run: MakeRun) -> None:
    started = [{"event": "worker_started", "rank": rank, "rss_bytes": 1, "host": f"n{rank // 2}"} for rank in range(4)]
    run = make_run("done", *reversed(started), job={"scheduler": "slurm", "app": "12"}, cluster="lab")
    assert status_text(run, run_state(run), None).splitlines()[1:3] == ["job          12 on lab", "nodes        n0, n1"]


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
