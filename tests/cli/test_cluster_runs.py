"""Runs of a cluster from any shell: what its scheduler says, joined with the runs' files. Slurm is a few scripts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dlrmx.launch.manifest import RUN
from dlrmx.runs.claim import hold
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import update_run
from kube_server import VOLCANO_JOBS, Cluster, serving, write_kubeconfig
from scripted import Dlrmx, MakeRun

PROGRAM = [sys.executable, "-c", "from dlrmx_cli.main import main; main()"]
COMMAND = """\
#!/bin/sh
echo "$(basename "$0") $*" >>{folder}/calls
if [ -f {folder}/down ]; then echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; fi
case "$*" in
  *%k*) cat {folder}/jobs;;
  *) cat "{folder}/$(basename "$0").out" 2>/dev/null || {{ echo "Invalid job id specified" >&2; exit 1; }};;
esac
"""


class Slurm:
    """Slurm's commands as scripts that print what a test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("squeue", "sacct", "scontrol", "scancel"):
            (folder / name).write_text(COMMAND.format(folder=folder))
            (folder / name).chmod(0o755)
        (folder / "jobs").write_text("")

    def say(self, command: str, text: str) -> None:
        (self.folder / f"{command}.out").write_text(text)

    def list(self, *jobs: tuple[str, RunPaths | Path, str]) -> None:
        """(job, run, state) of the user's jobs."""
        lines = [f"{job}|{run.name}|{state}|dlrmx {getattr(run, 'dir', run)}" for job, run, state in jobs]
        (self.folder / "jobs").write_text("\n".join([*lines, "99|other|RUNNING|(null)", ""]))

    def calls(self) -> str:
        path = self.folder / "calls"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    stand_in = Slurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{stand_in.folder}:{os.environ['PATH']}")
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "big.yaml").write_text(f"scheduler: slurm\nroot: {tmp_path}/runs\n")
    return stand_in


def submitted(make_run: MakeRun, state: str, job: str, name: str, **fields: Any) -> RunPaths:
    return make_run(state, name=name, job={"scheduler": "slurm", "app": job}, **fields)


def test_live_jobs_are_listed_with_what_their_files_say(slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun) -> None:
    live = submitted(make_run, "running", "11", "live")
    waits = submitted(make_run, "created", "12", "waits")
    submitted(make_run, "done", "10", "ended")
    slurm.list(("11", live, "RUNNING"), ("12", waits, "PENDING"), ("13", Path("/elsewhere/gone"), "PENDING"))
    with hold(live):
        done = dlrmx("runs", "--cluster", "big")
        listed = json.loads(dlrmx("runs", "--cluster", "big", "--json").stdout)["runs"]
        everything = dlrmx("runs", "--cluster", "big", "--all").stdout
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [(row[0], row[1], row[-2], row[-1]) for row in rows[1:]] == [
        ("gone", "pending", "13", "pending"),
        ("waits", "waiting", "12", "pending"),
        ("live", "running", "11", "running"),
    ]
    assert [(entry["name"], entry["job"]["state"]) for entry in listed] == [
        ("gone", "pending"), ("waits", "pending"), ("live", "running"),
    ]  # fmt: skip
    assert "ended" in everything
    assert "ended" not in done.stdout


def test_runs_of_a_cluster_are_those_of_its_root_and_no_others(
    slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun, tmp_path: Path
) -> None:
    make_run("done", name="mine")
    (tmp_path / "clusters" / "far.yaml").write_text("scheduler: slurm\nroot: /nowhere/runs\n")
    assert "mine" in dlrmx("runs", "--cluster", "big", "--all").stdout
    empty = dlrmx("runs", "--cluster", "far", "--all")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "no runs of yours on far" in empty.stderr


def test_a_scheduler_that_does_not_answer_ends_with_3(slurm: Slurm, dlrmx: Dlrmx) -> None:
    (slurm.folder / "down").touch()
    assert dlrmx("runs", "--cluster", "big").exit_code == 3


def test_all_alone_would_have_no_effect(dlrmx: Dlrmx) -> None:
    assert dlrmx("runs", "--all").exit_code == 2


def test_a_waiting_run_says_for_what(slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun) -> None:
    submitted(make_run, "created", "12", "waits")
    slurm.say("squeue", "12|PENDING|Priority|2026-12-01T08:00:00|\n")
    first, job, *_ = dlrmx("status", "waits").stdout.splitlines()
    assert first.startswith("waits: waiting")
    assert job == "job          12: PENDING: waits for Priority; expected to start at 2026-12-01T08:00:00"


def test_a_job_that_died_in_the_queue_is_told_by_status(slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun) -> None:
    submitted(make_run, "created", "12", "dead")
    slurm.say("sacct", "12|NODE_FAIL|0:0|None assigned|dead\n")
    done = dlrmx("status", "dead")
    assert done.stdout.startswith("dead: failed"), done.output
    assert "diagnosis    node failure" in done.stdout


def test_a_job_that_is_taken_back_is_resumed_as_it_was_submitted(
    slurm: Slurm, dlrmx: Dlrmx, tmp_path: Path, recipe_file: Path
) -> None:
    """One that never began, too: its recipe is where its run is."""
    (slurm.folder / "sbatch").write_text("#!/bin/sh\necho 12\n")
    (slurm.folder / "sbatch").chmod(0o755)
    words = ["train", recipe_file, "--cluster", "big", "--name", "early", "-s", "train.batch=64", "-d"]
    done = dlrmx(*words)
    assert (done.exit_code, done.stdout) == (0, "early\n"), done.output
    assert "accepted as job 12 on big; follow it with: dlrmx watch early" in done.stderr
    assert dlrmx("runs").stdout.splitlines()[1].split()[:2] == ["early", "waiting"]
    slurm.say("squeue", "12|PENDING|Priority|N/A||early\n")
    ended = f"echo '12|CANCELLED by 0|0:0|None assigned|early' >{slurm.folder}/sacct.out"
    (slurm.folder / "scancel").write_text(f"#!/bin/sh\nrm {slurm.folder}/squeue.out\n{ended}\n")
    done = dlrmx("cancel", "early")
    assert done.stderr == "early was waiting: job 12 is taken back; go on with: dlrmx resume early\n"
    assert dlrmx("runs").stdout.splitlines()[1].split()[:2] == ["early", "stopped"]
    status = dlrmx("status", "early").stdout
    assert "ended by     job 12: CANCELLED before it began" in status
    assert status.endswith("next         dlrmx resume early\n")
    assert dlrmx("watch", "early").exit_code == 75
    assert "batch: 64" in dlrmx("resume", "early", "-n").stdout


def test_the_listing_that_asks_the_scheduler_writes_down_what_it_says(
    slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun
) -> None:
    gone = submitted(make_run, "created", "12", "gone")
    lost = submitted(make_run, "running", "13", "lost")
    slurm.list(("13", lost, "FAILED"))
    slurm.say("sacct", "12|CANCELLED by 0|0:0|None|gone\n13|NODE_FAIL|0:0|n1|lost\n")
    assert dlrmx("runs", "--cluster", "big").stdout == ""
    rows = {line.split()[0]: line.split()[1] for line in dlrmx("runs").stdout.splitlines()}
    assert (rows["gone"], rows["lost"]) == ("stopped", "failed")
    assert gone.run.is_file()


def test_earlier_jobs_refused_ones_and_errands_are_no_runs(
    slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun, tmp_path: Path
) -> None:
    run = submitted(make_run, "stopped", "14", "long")
    root = tmp_path / "runs"
    slurm.list(
        ("4", run, "FAILED"), ("12", root / "refused-4", "FAILED"), ("13", root / "doctor-261130-221001-77", "RUNNING"),
        ("14", run, "FAILED"), ("15", Path("/elsewhere/theirs"), "FAILED"),
    )  # fmt: skip
    rows = [line.split() for line in dlrmx("runs", "--cluster", "big", "--all").stdout.splitlines()[1:]]
    assert [(row[0], row[-2:]) for row in rows] == [("theirs", ["15", "failed"]), ("long", ["14", "failed"])]


def test_a_run_that_waits_is_told_apart_from_one_that_never_started(
    slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun
) -> None:
    """Its node process was killed with the job, which Slurm starts again: all verbs say so alike."""
    run = submitted(make_run, "running", "7", "pre")
    slurm.say("squeue", "7|PENDING|BeginTime|N/A||pre\n")
    slurm.list(("7", run, "PENDING"))
    status = json.loads(dlrmx("status", "pre", "--json").stdout)
    listed = json.loads(dlrmx("runs", "--cluster", "big", "--json").stdout)["runs"][0]
    assert status["state"] == listed["state"] == "waiting"
    assert status["job"]["words"].startswith("PENDING: Slurm holds a job back")
    assert (status["job"]["app"], status["job"]["state"], status["diagnosis"]) == ("7", "pending", None)
    assert dlrmx("status", "pre").stdout.splitlines()[-2:] == [
        "next         dlrmx watch pre", "             dlrmx cancel pre",
    ]  # fmt: skip


def test_status_answers_while_the_scheduler_does_not(slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun) -> None:
    submitted(make_run, "created", "12", "waits")
    (slurm.folder / "down").touch()
    done = dlrmx("status", "waits")
    assert (done.exit_code, done.stdout.splitlines()[0].split()[:2]) == (0, ["waits:", "waiting"])


def test_watch_does_not_wait_for_a_job_that_is_gone(slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun) -> None:
    submitted(make_run, "created", "12", "dead")
    slurm.say("sacct", "12|NODE_FAIL|1:0|n2\n")
    done = dlrmx("watch", "dead")
    assert done.exit_code == 1
    assert "diagnosis    node failure" in done.stdout


def test_a_run_that_has_saved_and_will_be_started_again_is_watched_on(
    slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun, tmp_path: Path
) -> None:
    run = submitted(make_run, "stopped", "12", "preempted", exit_code=75)
    slurm.say("squeue", "12|PENDING|BeginTime|N/A|\n")
    assert "job          12: PENDING: Slurm holds a job back" in dlrmx("status", "preempted").stdout
    process = watching(run, tmp_path, slurm)
    slurm.say("sacct", "12|COMPLETED|0:0|n2\n")
    (slurm.folder / "squeue.out").unlink()
    update_run(run, state="done", exit_code=0)
    process.communicate(timeout=240)
    assert process.returncode == 0


@pytest.mark.parametrize("queue", ["12|COMPLETED|None|N/A|\n", None])
def test_one_that_stays_stopped_is_not_waited_for(
    slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun, queue: str | None
) -> None:
    submitted(make_run, "stopped", "12", "saved", exit_code=75)
    if queue is not None:
        slurm.say("squeue", queue)
    assert dlrmx("watch", "saved").exit_code == 75


def test_a_run_that_another_machine_submitted_is_found_by_its_name(
    slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run("done", name="theirs")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "dlrmx").mkdir(parents=True)
    (tmp_path / "clusters").rename(tmp_path / "config" / "dlrmx" / "clusters")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert dlrmx("status", "theirs").stdout.startswith("theirs: done")
    assert dlrmx("status", "their").exit_code == 4


def test_logs_do_not_wait_for_a_job_that_is_gone(slurm: Slurm, dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = submitted(make_run, "created", "12", "dead")
    run.attempt(1).node_log(0).write_text("last words\n")
    slurm.say("sacct", "12|NODE_FAIL|1:0|n2\n")
    assert dlrmx("logs", "-f", "dead").stdout == "last words\n"


def watching(run: RunPaths, tmp_path: Path, slurm: Slurm) -> "subprocess.Popen[str]":
    """`dlrmx watch`, once it has asked after the job."""
    process = subprocess.Popen(
        [*PROGRAM, "watch", run.name], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: "squeue" in slurm.calls() or process.poll() is not None)
    return process


def until(what: Any) -> None:
    deadline = time.monotonic() + 240
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_whoever_stops_watching_leaves_the_job_alone(
    slurm: Slurm, make_run: MakeRun, tmp_path: Path, number: signal.Signals
) -> None:
    run = submitted(make_run, "created", "12", "waits")
    slurm.say("squeue", "12|PENDING|Priority|N/A|\n")
    process = watching(run, tmp_path, slurm)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == (0 if number == signal.SIGINT else -number), stderr
    if number == signal.SIGINT:
        assert stderr.splitlines()[-2:] == [
            "job 12: PENDING: waits for Priority",
            "detached; waits goes on as job 12: dlrmx watch waits follows it, dlrmx cancel waits saves and stops it",
        ]
    assert "scancel" not in slurm.calls()
    assert not run.attempt(1).stop_request.exists()


def test_a_scheduler_that_is_away_for_a_while_ends_nothing(slurm: Slurm, make_run: MakeRun, tmp_path: Path) -> None:
    run = submitted(make_run, "created", "12", "waits")
    (slurm.folder / "down").touch()
    process = watching(run, tmp_path, slurm)
    slurm.say("sacct", "12|COMPLETED|0:0|n2\n")
    update_run(run, state="done", exit_code=0)
    (slurm.folder / "down").unlink()
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert "does not answer" in stderr
    assert stdout.startswith("waits: done")


def test_a_kubernetes_cluster_is_asked_for_jobs_that_carry_their_runs_names(
    dlrmx: Dlrmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    labels = {"app.kubernetes.io/managed-by": "dlrmx"}
    for name, phase in (("one", "Running"), ("two", "Failed")):
        metadata = {"name": name, "namespace": "ads", "labels": labels, "annotations": {RUN: f"{name}.RUN_1"}}
        cluster.put(VOLCANO_JOBS, {"metadata": metadata, "status": {"state": {"phase": phase}}})
    (tmp_path / "clusters").mkdir()
    profile = "scheduler: kubernetes\nimage: x\nroot: /runs\nvolumes: {runs: {claim: runs, mount: /runs}}\n"
    (tmp_path / "clusters" / "pods.yaml").write_text(profile)
    with serving(cluster) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        live = dlrmx("runs", "--cluster", "pods", "--json")
        all_ = dlrmx("runs", "--cluster", "pods", "--all", "--json")
    assert [run["name"] for run in json.loads(live.stdout)["runs"]] == ["one.RUN_1"]
    assert {run["name"] for run in json.loads(all_.stdout)["runs"]} == {"one.RUN_1", "two.RUN_1"}
