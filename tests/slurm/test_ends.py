"""However a job ends on a cluster: its state, its exit code, and why. Workers are fake, all else is real."""

import subprocess
from pathlib import Path

import pytest
from torchx.specs import AppState

from dlrmx.launch.slurm import SlurmScheduler
from dlrmx.launch.submit import cancel, dry_run_text
from dlrmx.runs.state import run_state
from fake_job import wait_for
from slurm_lab import Lab, begin, fake_job

LONG = {"steps": 100_000, "step_s": 0.05, "save_every": 2}


def test_the_printed_script_runs_as_printed_on_four_nodes(lab: Lab, tmp_path: Path) -> None:
    """With no run there, by sbatch from its stdin; and torchx's own questions about it are answered."""
    odd = 'it\'s "$HOME", one\nand two'
    job = fake_job(lab, tmp_path, {"steps": 5, "note": odd})
    text = dry_run_text(job.spec, job.profile)
    assert not job.run.dir.exists()
    done = subprocess.run(["sbatch", "--parsable"], input=text, text=True, env=lab.env, capture_output=True, check=True)
    wait_for(lambda: job.run.run.exists() and run_state(job.run).ended)
    state = run_state(job.run)
    assert (state.state, state.exit_code, state.attempt, state.step) == ("done", 0, 1, 5)
    app = done.stdout.strip()
    lab.await_state(app, "COMPLETED")
    assert {event["host"] for event in job.events(1, "worker_started")} == {"n0", "n1", "n2", "n3"}
    assert sorted(path.name for path in job.run.attempt(1).logs.iterdir()) == [f"node-{node}.log" for node in range(4)]
    assert "rank 2 of 4" in job.run.attempt(1).node_log(2).read_text()
    scheduler = SlurmScheduler("of another shell")
    assert [(row.name, row.state) for row in scheduler.list() if row.app_id == app] == [("tiny-1", AppState.SUCCEEDED)]
    described = scheduler.describe(app)
    assert described
    assert described.state == AppState.SUCCEEDED
    lines = list(scheduler.log_iter(app, "node", k=2, regex="rank"))
    assert [line.strip() for line in lines] == ["rank 2 of 4"]
    assert scheduler.describe("999999") is None


def test_a_rank_that_fails_is_named_with_its_node(lab: Lab, tmp_path: Path) -> None:
    """slurm.md 7: torchx tells no exit code, no rank, no host."""
    peers = [{"rank": rank, "step": 4, "how": "lose_peer"} for rank in (0, 1, 3)]
    faults = [{"rank": 2, "step": 3, "how": "tell"}, *peers]
    job = begin(lab, fake_job(lab, tmp_path, {"steps": 8, "faults": faults}, "retry.attempts_without_progress=1"))
    assert job.wait() == 1, job.log()
    state = run_state(job.run)
    assert (state.state, state.exit_code, state.attempt) == ("failed", 1, 1)
    assert state.first_cause
    assert (state.first_cause.rank, state.first_cause.host, state.first_cause.cause) == (2, "n2", "NaN")


def test_scancel_saves_and_ends(lab: Lab, tmp_path: Path) -> None:
    """X2, slurm.md 1: "CANCELLED by 0" makes torchx fail for good."""
    job = begin(lab, fake_job(lab, tmp_path, LONG))
    job.await_step(2)
    lab.slurm("scancel", job.id)
    assert job.wait() == 75, job.log()
    state = run_state(job.run)
    assert (state.state, state.checkpoint) == ("stopped", job.events(1, "stopped")[0]["step"])
    assert lab.in_queue(job.id) == "CANCELLED"


def test_cancel_saves_stops_and_is_not_started_again(lab: Lab, tmp_path: Path) -> None:
    job = begin(lab, fake_job(lab, tmp_path, LONG))
    job.await_step(2)
    cancel(job.run)
    assert job.wait() == 75, job.log()
    state = run_state(job.run)
    assert (state.state, state.exit_code, state.checkpoint) == ("stopped", 75, job.events(1, "stopped")[0]["step"])
    assert lab.in_queue(job.id) == "FAILED"


def test_a_job_that_waits_is_taken_back(lab: Lab, tmp_path: Path) -> None:
    job = begin(lab, fake_job(lab, tmp_path, LONG, "cluster.sbatch.hold=true"))
    wait_for(lambda: job.job.poll() is None and "held" in job.job.words)
    assert cancel(job.run) == "taken back"
    state = run_state(job.run)
    assert (state.state, state.attempt) == ("stopped", 0)
    assert "CANCELLED before it began" in state.reason
    assert job.wait() == 75


def test_the_time_limit_is_met_by_a_save_ahead_and_a_new_start(lab: Lab, tmp_path: Path) -> None:
    """X20: --signal ahead of the end, the script hands it on, 75 is requeued."""
    job = begin(lab, fake_job(lab, tmp_path, LONG, 'cluster.time="60"'))
    job.await_step(2)
    lab.limit(job.id)
    wait_for(lambda: job.events(1, "stopped"))
    assert job.job.poll() is None, "it goes on"
    lab.await_requeue(job.id)
    lab.slurm("scontrol", "update", f"JobId={job.id}", "TimeLimit=60")
    lab.restart(job.id)
    begun = wait_for(lambda: job.events(2, "begin"))
    assert job.events(1, "stop_requested")[0]["by"].startswith("SIGUSR1")
    assert begun[0]["step"] == job.events(1, "stopped")[0]["step"]
    starts = [line for line in job.log().splitlines() if line.startswith("=== job ")]
    assert [line.split(",")[1].strip() for line in starts] == ["start 0", "start 1"], "appended (X19)"


def test_a_save_that_outlasts_the_kill_survives_preemption(lab: Lab, tmp_path: Path) -> None:
    """KillWait is 30 s; the partition's grace is the time that preempted jobs get."""
    lab.slurm("scontrol", "update", "PartitionName=low", "GraceTime=90")
    settings = ("cluster.partition=low", "cluster.grace.minutes=1.5")
    job = begin(lab, fake_job(lab, tmp_path, {**LONG, "save_every": 10**6, "save_s": 45}, *settings))
    wait_for(lambda: job.events(1, "begin"))
    other = lab.slurm(
        "sbatch", "--parsable", "-p", "main", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1"
    )
    stopped = wait_for(lambda: job.events(1, "stopped"))
    assert run_state(job.run).checkpoint == stopped[0]["step"]
    lab.await_state(other, "COMPLETED")
    lab.restart(job.id)
    assert wait_for(lambda: job.events(2, "begin"))[0]["step"] == stopped[0]["step"]


def test_a_dead_node_ends_the_attempt_and_the_job_goes_on(lab: Lab, tmp_path: Path) -> None:
    """slurm.md 4 and 5: torchx's heterogeneous job is requeued by halves."""
    if lab.tools is None:
        pytest.skip("kills a node")
    job = begin(lab, fake_job(lab, tmp_path, LONG))
    job.await_step(2)
    lab.kill_node("n2")
    wait_for(lambda: run_state(job.run).state == "waiting")
    state = run_state(job.run)
    assert not state.ended, "it waits for its next start"
    cause = job.events(1, "failed")[0]
    assert (cause["host"], cause["cause"]) == ("n2", "lost")
    lab.await_requeue(job.id)
    assert job.job.poll() is None
    lab.heal()
    lab.restart(job.id)
    assert wait_for(lambda: job.events(2, "begin"))[0]["step"] == state.checkpoint


def test_ranks_that_slurm_lost_sight_of_end_before_the_next_start(lab: Lab, tmp_path: Path) -> None:
    """slurmd where node 0 leads is frozen: Slurm takes the node for dead, and starts the job on others."""
    if lab.tools is None:
        pytest.skip("freezes a slurmd")
    job = begin(lab, fake_job(lab, tmp_path, LONG, nodes=2))
    job.await_step(2)
    host = job.events(1, "begin")[0]["host"]
    with lab.frozen_slurmd(host):
        lab.restart(job.id)
        begun = wait_for(lambda: job.events(2, "begin"))
        (ended,) = job.events(1, "attempt_ended")
        assert ended["time"] < job.events(2, "claimed")[0]["time"]
        assert begun[0]["step"] >= max(event["step"] for event in job.events(1, "saved"))
        assert host not in {event["host"] for event in job.events(2, "worker_started")}
        assert lab.slurm("squeue", "-h", "-j", job.id, "-o", "%T") == "RUNNING", "the old script has requeued nothing"
    assert job.job.poll() is None


def test_two_jobs_at_once_on_the_same_nodes_never_meet(lab: Lab, tmp_path: Path) -> None:
    """X16, slurm.md 3."""
    jobs = [begin(lab, fake_job(lab, tmp_path / name, {"steps": 10}, nodes=2, run=name)) for name in ("a-1", "b-1")]
    assert [job.wait() for job in jobs] == [0, 0]
    hosts = [{event["host"] for event in job.events(1, "worker_started")} for job in jobs]
    assert hosts[0] == hosts[1], "they shared the nodes"
    assert [len(job.events(1, "worker_started")) for job in jobs] == [2, 2]
