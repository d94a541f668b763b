"""One run through all that a cluster does to jobs, with real workers: its model is that of an undisturbed run."""

import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dlrmx.launch.remote import RemoteJob
from dlrmx.launch.submit import attach
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import read_records
from dlrmx.runs.state import run_state
from fake_job import PATIENCE_S, wait_for
from slurm_lab import Lab, LabCli, lab_cli
from training import differing

SMALL = ("data.rows=130_000", "train.evaluate.every=null", "checkpoint.every.steps=5", "checkpoint.best=null")


def started(run: RunPaths, attempt: int) -> list[Any]:
    return read_events(run.attempt(attempt), "begin")


def saved_after_begin(run: RunPaths, attempt: int) -> bool:
    """Whether the attempt has saved something of its own."""
    return bool(started(run, attempt)) and bool(read_events(run.attempt(attempt), "saved"))


@pytest.fixture
def cli(lab: Lab, tmp_path: Path) -> LabCli:
    return lab_cli(lab, tmp_path)


def test_quickstart_on_four_nodes_and_through_many_lives(cli: LabCli, lab: Lab) -> None:
    """Preemption by a higher partition, scontrol requeue, a dead node; attached to the undisturbed one."""
    asked = time.time()
    undisturbed = cli.execute("train", "quickstart", "--name", "calm", "--cluster", "lab", *cli.settings(SMALL))
    calm = cli.run("calm")
    assert "calm is done at step" in undisturbed.stdout
    first = next(record for record in read_records(calm) if record["kind"] == "step")
    print(f"submit to step {first['step']}: {first['time'] - asked:.1f} s", file=sys.stderr)

    cli.execute(
        "train", "quickstart", "--name", "many", "--cluster", "lab", "-d", *cli.settings(SMALL, "cluster.partition=low")
    )
    run = cli.run("many")
    job = attach(run)
    assert isinstance(job, RemoteJob)
    wait_for(lambda: saved_after_begin(run, 1))
    lab.slurm("sbatch", "-p", "main", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")
    lab.restart(job.app, 1)
    wait_for(lambda: saved_after_begin(run, 2))
    lab.slurm("scontrol", "requeue", job.app)
    lab.restart(job.app, 2)
    attempts = 3
    if lab.tools is not None:
        wait_for(lambda: saved_after_begin(run, 3))
        lab.kill_node("n1")
        wait_for(lambda: read_events(run.attempt(3), "attempt_ended"))
        lab.await_requeue(job.app, 3)
        lab.heal()
        lab.restart(job.app, 3)
        attempts = 4
    wait_for(lambda: job.poll() is not None)
    state = run_state(run)
    assert (state.state, state.exit_code, state.attempt) == ("done", 0, attempts), json.dumps(str(state))
    begun = [started(run, attempt)[0]["step"] for attempt in range(1, attempts + 1)]
    assert begun == sorted(set(begun)), "each attempt went further than the one before"
    final = state.checkpoint
    assert final
    assert differing(run.checkpoint(final), calm.checkpoint(final)) == []


def test_quickstart_itself(cli: LabCli) -> None:
    done = cli.execute("train", "quickstart", "--cluster", "lab", seconds=900)
    assert "AUC 0.8" in done.stdout


def test_ctrl_c_leaves_the_job_alone_and_an_unreachable_cluster_is_exit_3(cli: LabCli, lab: Lab) -> None:
    words = ["train", "quickstart", "--name", "left", "--cluster", "lab", *cli.settings(SMALL)]
    process = cli.start(*words)
    run = cli.run("left")
    wait_for(lambda: run.run.exists() and run.attempts() and started(run, 1))
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, err
    assert "detached; left goes on" in err
    assert "dlrmx watch left follows it, dlrmx cancel left saves and stops it" in err
    job = attach(run)
    assert job is not None
    assert job.poll() is None, "it goes on"
    assert cli.execute("cancel", "left").returncode == 0
    wait_for(lambda: job.poll() is not None)
    assert run_state(run).state == "stopped"
    deaf = cli.folder / "slurm.conf"
    deaf.write_text(re.sub(r"(?m)^(SlurmctldPort=).*", r"\g<1>1", lab.conf.read_text()) + "MessageTimeout=2\n")
    nobody = cli.execute(*words[:3], "gone", *words[4:], expect=3, env={"SLURM_CONF": str(deaf)})
    assert "the Slurm controller does not answer" in nobody.stderr


def test_a_refusal_is_told_with_the_key(cli: LabCli) -> None:
    refused = cli.execute("train", "quickstart", "--cluster", "lab", "-s", "cluster.partition=nope", expect=3)
    assert "nope" in refused.stderr
    assert "partition in the cluster profile" in refused.stderr


def test_a_job_that_cannot_start_says_what_it_waits_for(cli: LabCli) -> None:
    cli.execute("train", "quickstart", "--name", "wide", "--cluster", "lab", "--nodes", "9", "-d")
    job = attach(cli.run("wide"))
    assert job is not None
    wait_for(lambda: job.poll() is None and "`nodes` is above the partition's limit" in job.words)
    assert "taken back" in cli.execute("cancel", "wide").stderr


def test_stray_variables_of_the_shell_are_told_and_kept_from_the_job(cli: LabCli) -> None:
    """slurm.md 16: a stray SBATCH_* of the shell beats the script, and would end this job at once."""
    strays = {"SBATCH_PARTITION": "nope", "SBATCH_NO_REQUEUE": "1"}
    words = ["train", "quickstart", "--name", "held", "--cluster", "lab", "-d", "-s", "cluster.sbatch.hold=true"]
    done = cli.execute(*words, env=strays)
    assert "SBATCH_PARTITION is set in this shell" in done.stderr
    assert "taken back" in cli.execute("cancel", "held").stderr
