"""The verbs on runs from a shell that has never heard of the run: the scheduler and the run's files know it."""

import json
from pathlib import Path
from typing import Any

from fake_job import PATIENCE_S
from slurm_lab import Lab, LabCli, LabJob, begin, fake_job, lab_cli


def _listed(cli: LabCli, job: LabJob, env: dict[str, str], *words: str) -> list[dict[str, Any]]:
    """The rows of this job: the controller goes on listing those of other tests for minutes."""
    rows = json.loads(cli.execute("runs", "--cluster", "lab", *words, "--json", env=env).stdout)["runs"]
    return [row for row in rows if row["job"] and row["job"]["app"] == job.id]


def test_a_job_is_found_followed_and_stopped_from_any_shell(lab: Lab, tmp_path: Path) -> None:
    cli = lab_cli(lab, tmp_path)
    another = {"XDG_STATE_HOME": str(tmp_path / "another")}
    job = begin(lab, fake_job(lab, tmp_path, {"steps": 100_000, "step_s": 0.05, "save_every": 5}, nodes=2))
    job.await_step(5)
    (listed,) = _listed(cli, job, another)
    assert (listed["name"], listed["state"]) == ("tiny-1", "running")
    assert (listed["job"]["app"], listed["job"]["state"]) == (job.id, "running")
    assert cli.execute("status", "tiny-1", env=another).stdout.startswith("tiny-1: running")

    watcher = cli.start("watch", "tiny-1", env=another)
    cli.execute("cancel", "tiny-1", env=another)
    out, err = watcher.communicate(timeout=PATIENCE_S)
    assert watcher.returncode == 75, out + err
    assert out.startswith("tiny-1: stopped")
    assert _listed(cli, job, another) == []
    (ended,) = _listed(cli, job, another, "--all")
    assert (ended["name"], ended["state"]) == ("tiny-1", "stopped")
    assert "rank 0 of 2" in cli.execute("logs", "tiny-1", env=another).stdout


def test_what_slurm_ended_in_the_queue_is_told(lab: Lab, tmp_path: Path) -> None:
    cli = lab_cli(lab, tmp_path)
    job = begin(lab, fake_job(lab, tmp_path, {}, "cluster.sbatch.begin=now+1hour"))
    waits = cli.execute("status", "tiny-1").stdout
    assert waits.startswith("tiny-1: waiting")
    assert f"job          {job.id}: PENDING" in waits
    lab.slurm("scancel", job.id)
    job.wait()
    done = cli.execute("status", "tiny-1").stdout
    assert done.startswith("tiny-1: stopped")
    assert f"ended by     job {job.id}: CANCELLED before it began" in done
