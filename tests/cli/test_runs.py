"""runs, status, watch, logs, report, cancel: from any folder, from the run's files."""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from dlrmx.runs.claim import create_run, hold
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import append_record
from dlrmx.runs.registry import register
from dlrmx.runs.run_file import update_run
from scripted import EVALUATION, Dlrmx, MakeRun

STATUS_KEYS = {
    "version", "name", "dir", "recipe", "state", "created", "attempt", "phase", "step", "total_steps", "checkpoint",
    "saves_failed", "steps_repeated", "nodes_lost", "exit_code", "reason", "first_cause", "evaluation", "evaluates",
    "is_copy", "diagnosis", "job", "hosts",
}  # fmt: skip


def test_no_runs_yet(dlrmx: Dlrmx) -> None:
    done = dlrmx("runs")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "dlrmx train quickstart" in done.stderr


def test_runs_are_listed_newest_first_from_any_folder(
    dlrmx: Dlrmx, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run("done", name="old")
    make_run("failed", name="new")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = json.loads(dlrmx("runs", "--json").stdout)["runs"]
    assert [(run["name"], run["state"]) for run in found] == [("new", "failed"), ("old", "done")]
    assert [line.split()[0] for line in dlrmx("runs").stdout.splitlines()] == ["run", "new", "old"]


def test_status_takes_a_name_a_prefix_a_path_or_the_newest(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    first = make_run("stopped", {"event": "stopped", "step": 3}, name="first")
    make_run("done", {"event": "finished", "step": 20}, name="second")
    for words in (("first",), ("fir",), (str(first.dir),)):
        assert dlrmx("status", *words).stdout.startswith("first: stopped  step 3 of 20"), words
    assert dlrmx("status").stdout.startswith("second: done")


def test_of_two_runs_of_one_name_that_of_this_folder_wins(
    dlrmx: Dlrmx, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make_run("done", name="mine")
    there = tmp_path / "elsewhere" / "runs"
    there.mkdir(parents=True)
    shutil.copytree(here.dir, there / "mine")
    register(RunPaths(there / "mine"))
    assert json.loads(dlrmx("status", "mine", "--json").stdout)["dir"] == str(here.dir)
    monkeypatch.chdir(there.parent)
    assert json.loads(dlrmx("status", "mine", "--json").stdout)["dir"] == str(there / "mine")
    (tmp_path / "neither").mkdir()
    monkeypatch.chdir(tmp_path / "neither")
    ambiguous = dlrmx("status", "mine")
    assert ambiguous.exit_code == 2
    assert str(here.dir) in ambiguous.stderr


def test_the_next_commands_mean_this_very_run(
    dlrmx: Dlrmx, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that means another run here, or several, is not offered: its path is."""
    here = make_run("stopped", name="mine")
    assert "dlrmx resume mine\n" in dlrmx("status").stdout
    there = RunPaths(tmp_path / "elsewhere" / "runs" / "mine")
    shutil.copytree(here.dir, there.dir)
    register(there)
    assert f"dlrmx resume {there.dir}\n" in dlrmx("status", there.dir).stdout  # here `mine` is the other one
    assert "dlrmx resume mine\n" in dlrmx("status", here.dir).stdout
    (tmp_path / "neither").mkdir()
    monkeypatch.chdir(tmp_path / "neither")
    assert f"dlrmx resume {here.dir}\n" in dlrmx("status", here.dir).stdout


def test_status_as_json_is_as_documented(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    event = {"event": "failed", "rank": 1, "step": 7, "cause": "NonFinite", "message": "NaN", "primary": True}
    run = make_run("failed", event, exit_code=1, reason="rank 1: NaN")
    append_record(run.attempt(1), **EVALUATION)
    status = json.loads(dlrmx("status", "--json").stdout)
    assert set(status) == STATUS_KEYS
    assert (status["state"], status["exit_code"], status["first_cause"]["rank"]) == ("failed", 1, 1)
    assert status["evaluation"]["ne"] == EVALUATION["ne"]


def test_logs_print_those_of_the_newest_attempt(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run()
    run.attempt(1).node_log(0).write_text("hello\nworld\n")
    assert dlrmx("logs").stdout == "hello\nworld\n"
    assert dlrmx("logs", "-f").stdout == "hello\nworld\n"  # a run that has ended is not waited for


def test_logs_say_where_all_of_it_is_and_what_was_done_when(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run("done", {"event": "phase", "phase": "start"}, {"event": "finished", "step": 20})
    run.attempt(1).node_log(0).write_text("hello\n")
    done = dlrmx("logs")
    assert done.stdout == "hello\n"
    launch, attempt, phases = done.stderr.splitlines()
    assert launch == f"launch: {run.launch_log}"
    assert attempt == f"attempt 1: {run.attempt(1).logs}"
    assert phases.startswith("phases: start ")
    assert phases.endswith(f"; all that happened: {run.attempt(1).events}")


def test_logs_before_the_first_attempt_are_those_of_the_launch(dlrmx: Dlrmx, tmp_path: Path) -> None:
    run = create_run(tmp_path / "runs", "clicks", None, "0" * 12)
    run.launch_log.write_text("no module named dlrmx\n")
    assert dlrmx("logs", "clicks-1").stdout == "no module named dlrmx\n"


def test_a_run_that_cannot_be_read_does_not_hide_the_others(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    make_run(name="good")
    make_run(name="bad").run.write_text("{")
    done = dlrmx("runs")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["run", "good"]
    assert "left out: no run at" in done.stderr


def test_report_compares_runs(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    for name in ("one", "two"):
        append_record(make_run(name=name).attempt(1), **EVALUATION)
    evaluations = json.loads(dlrmx("report", "one", "two", "--json").stdout)["evaluations"]
    assert [row["run"] for row in evaluations] == ["one", "two"]
    assert len(dlrmx("report", "one", "two").stdout.splitlines()) == 3
    assert [line.split()[0] for line in dlrmx("report").stdout.splitlines()] == ["run", "two"]


def test_report_on_records_edited_by_hand_gives_words(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run()
    append_record(run.attempt(1), **EVALUATION)
    append_record(run.attempt(1), **{**EVALUATION, "loss": "low"})
    append_record(run.attempt(1), kind="evaluation", step=20)
    append_record(run.attempt(1), kind="step", step=20)
    done = dlrmx("report")
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["run", "split"], ["clicks-1", "test"]]
    assert done.stderr == f"left out: {run.attempt(1).records}: 2 lines are no records\n"
    assert dlrmx("status").exit_code == 0
    assert dlrmx("watch").exit_code == 0


def test_report_of_a_run_without_evaluations(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    make_run("failed")
    done = dlrmx("report")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no evaluations yet" in done.stderr


def test_cancel_asks_a_live_run_to_stop(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run("running")
    with hold(run):
        assert dlrmx("cancel").exit_code == 0
    assert run.attempt(1).stop_request.exists()


def test_cancel_refuses_a_run_that_is_not_running(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run("done")
    done = dlrmx("cancel")
    assert done.exit_code == 2
    assert "is not running" in done.stderr
    assert not run.attempt(1).stop_request.exists()


def test_watch_follows_to_the_end(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run("running")
    held = threading.Event()

    def finish() -> None:
        with hold(run):
            held.set()
            time.sleep(0.4)
            append_event(run.attempt(1), "saved", step=20, bytes=10, seconds=1)
            append_event(run.attempt(1), "finished", step=20)
            update_run(run, state="done", exit_code=0)

    thread = threading.Thread(target=finish)
    thread.start()
    held.wait()
    done = dlrmx("watch")
    thread.join()
    assert done.exit_code == 0
    assert done.stderr.startswith(f"run clicks-1 in {run.dir}\n")
    assert "saved step 20" in done.stderr
    assert done.stdout.startswith("clicks-1: done")


@pytest.mark.parametrize(
    ("state", "recorded", "code"), [("done", 0, 0), ("stopped", 75, 75), ("failed", 2, 2), ("failed", None, 1)]
)
def test_watch_of_a_run_that_has_ended_ends_at_once_as_the_run_did(
    dlrmx: Dlrmx, make_run: MakeRun, state: str, recorded: int | None, code: int
) -> None:
    make_run(state, {"event": "attempt_ended", "outcome": state, "step": 3}, exit_code=recorded, reason="why")
    done = dlrmx("watch")
    assert done.exit_code == code
    assert done.stdout.startswith(f"clicks-1: {state}")


def test_ctrl_c_leaves_a_watched_run_alone(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run("running")
    with hold(run):
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        done = dlrmx("watch")
        timer.join()
    assert (done.exit_code, done.stdout) == (0, "")
    assert "detached; clicks-1 goes on" in done.stderr
    assert not run.attempt(1).stop_request.exists()
