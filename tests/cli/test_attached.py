"""train, resume and evaluate with a node process that plays a script."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dlrmx.launch import submit
from dlrmx.launch.job import JobSpec
from dlrmx.launch.remote import RemoteJob
from dlrmx.recipe.profiles import Profile
from dlrmx.runs.claim import is_live
from dlrmx.runs.layout import RunPaths
from scripted import EVALUATION, STEP, Dlrmx, MakeRun, Play
from small_checkpoint import save_checkpoint

PROGRAM = str(Path(sys.executable).with_name("dlrmx"))
FINISHED = {"event": "finished", "step": 20}
FAILURE = {"event": "failed", "rank": 1, "step": 7, "cause": "NonFinite", "message": "loss is NaN", "primary": True}


def test_a_run_that_goes_well_prints_its_result(dlrmx: Dlrmx, recipe_file: Path, fake_node: Play) -> None:
    python = fake_node("done", records=[STEP, EVALUATION], events=[FINISHED])
    done = dlrmx("train", recipe_file, "-s", python)
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stderr.splitlines()] == [
        "prepare:", "plan", "start", "run", "train", "step", "evaluate",
    ]  # fmt: skip
    assert "NE 0.7531 (planted optimum 0.7421)" in done.stdout
    assert "dlrmx report clicks-1" in done.stdout


def test_its_json_is_that_of_status(dlrmx: Dlrmx, recipe_file: Path, fake_node: Play) -> None:
    python = fake_node("done", records=[EVALUATION], events=[FINISHED])
    result = json.loads(dlrmx("train", recipe_file, "-s", python, "--name", "mine", "--json").stdout)
    status = json.loads(dlrmx("status", "mine", "--json").stdout)
    assert result == status
    assert (result["state"], result["evaluation"]["ne"]) == ("done", EVALUATION["ne"])


def test_a_failure_says_first_what_failed_first(dlrmx: Dlrmx, recipe_file: Path, fake_node: Play) -> None:
    done = dlrmx("train", recipe_file, "-s", fake_node("fail", events=[FAILURE]))
    assert done.exit_code == 1
    assert done.stdout == ""
    message = done.stderr.partition("error: ")[2].splitlines()
    assert message[0].startswith("clicks-1 failed: rank 1 on ")
    assert message[0].endswith("at step 7: NonFinite: loss is NaN")
    assert "  | three" in message
    assert message[-2].startswith("  dlrmx data show ")


def test_a_node_process_that_cannot_start_is_told_with_what_it_said(
    dlrmx: Dlrmx, recipe_file: Path, fake_node: Play
) -> None:
    done = dlrmx("train", recipe_file, "-s", fake_node("crash"))
    assert done.exit_code == 1
    assert "  | no such interpreter here" in done.stderr
    assert done.stderr.splitlines()[-1] == "  dlrmx logs clicks-1"  # there is nothing to resume


def test_detached_it_prints_the_run_and_returns(recipe_file: Path, fake_node: Play, dlrmx: Dlrmx) -> None:
    words = [
        PROGRAM,
        "train",
        str(recipe_file),
        "-d",
        "-s",
        fake_node("stop", events=[{"event": "stopped", "step": 3}]),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "clicks-1\n"), done.stderr
    assert "dlrmx watch clicks-1" in done.stderr
    run = RunPaths(recipe_file.parent / "runs" / "clicks-1")
    wait_until_live(run)
    os.kill(json.loads(run.lock.read_text())["pid"], signal.SIGTERM)
    assert dlrmx("watch").stdout.startswith("clicks-1: stopped")


def test_a_dry_run_prints_the_job_and_writes_nothing(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    done = dlrmx("train", recipe_file, "--dry-run", "-s", "train.batch=64")
    assert done.exit_code == 0, done.output
    assert "-m dlrmx.launch.node" in done.stdout
    assert "batch: 64" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clicks.yaml"]


def test_a_dry_run_shows_control_characters_and_does_not_send_them(dlrmx: Dlrmx, recipe_file: Path) -> None:
    red = "\x1b[31mred\nline"
    done = dlrmx("train", recipe_file, "--dry-run", "-s", f"cluster.env.COLOUR={json.dumps(red)}")
    assert "\x1b" not in done.stdout
    command = done.stdout.replace("exec ", "printenv COLOUR #")
    printed = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert printed.stdout == f"{red}\n"


def test_a_dry_run_prints_what_would_be_submitted(
    dlrmx: Dlrmx, recipe_file: Path, fake_node: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the data are prepared, the printed job and the submitted one are the same, plan and name included."""
    submitted: list[JobSpec] = []

    def note_and_submit(spec: JobSpec, profile: Profile, **more: Any) -> submit.LocalJob | RemoteJob:
        submitted.append(spec)
        return real(spec, profile, **more)

    real = submit.submit
    monkeypatch.setattr(submit, "submit", note_and_submit)
    python = fake_node("done", events=[FINISHED])
    dlrmx("data", "prepare", recipe_file)
    printed = dlrmx("train", recipe_file, "-n", "-s", python).stdout
    dlrmx("train", recipe_file, "-s", python)
    environment = subprocess.run(
        ["bash", "-c", printed.replace("exec ", "printenv DLRMX_JOB #")], capture_output=True, text=True, check=True
    )
    assert JobSpec.from_variable(environment.stdout.rstrip("\n")) == submitted[0]
    assert submitted[0].plan_hash


def test_resume_goes_on_in_a_new_attempt(dlrmx: Dlrmx, make_run: MakeRun, fake_node: Play) -> None:
    run = make_run("stopped")
    save_checkpoint(run, 10)
    done = dlrmx("resume", "--from", "10", "-s", fake_node("done", records=[EVALUATION], events=[FINISHED]))
    assert done.exit_code == 0, done.output
    assert [attempt.number for attempt in run.attempts()] == [1, 2]
    assert "attempt 2" in done.stderr
    assert "NE 0.7531" in done.stdout


def test_evaluate_is_a_run_of_its_own(dlrmx: Dlrmx, make_run: MakeRun, fake_node: Play) -> None:
    run = make_run("done")
    recipe = run.attempt(1).recipe
    program = fake_node("done", records=[EVALUATION], events=[FINISHED]).removeprefix("cluster.python=")
    recipe.write_text(recipe.read_text() + f"cluster: {{python: {program}}}\n")
    path = save_checkpoint(run, 20)
    result = json.loads(dlrmx("evaluate", run.name, "--split", "validation", "--json").stdout)
    assert result["name"] == "clicks-1-eval-1"
    assert result["evaluation"]["ne"] == EVALUATION["ne"]
    assert result["evaluates"] == str(path)
    assert [attempt.number for attempt in run.attempts()] == [1]
    assert path.is_dir()


def start_in_own_process(recipe: Path, python: str) -> "subprocess.Popen[str]":
    """`dlrmx train`, once its run is live; SIGINT reaches it alone, as Ctrl-C does a launcher with a node elsewhere."""
    words = [PROGRAM, "train", str(recipe), "-s", python]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    wait_until_live(RunPaths(recipe.parent / "runs" / "clicks-1"))
    return process


def wait_until_live(run: RunPaths) -> None:
    deadline = time.monotonic() + 240
    while not (is_live(run) and run.attempts() and run.attempt(1).node_log(0).exists()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_saves_and_stops_with_75(recipe_file: Path, fake_node: Play) -> None:
    process = start_in_own_process(recipe_file, fake_node("stop", events=[{"event": "stopped", "step": 9}]))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 75, errors
    assert "saving, then stopping" in errors
    assert errors.splitlines()[-1].endswith("resume with: dlrmx resume clicks-1")


def test_a_second_ctrl_c_kills_with_130(recipe_file: Path, fake_node: Play) -> None:
    process = start_in_own_process(recipe_file, fake_node("hang"))
    assert process.stderr
    process.send_signal(signal.SIGINT)
    while "saving, then stopping" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 130, errors
    assert "killed" in errors
    assert not is_live(RunPaths(recipe_file.parent / "runs" / "clicks-1"))
