"""The node process with real agents and fake workers: crashes, kills, stops, retries."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrmx import __version__
from dlrmx.launch import node
from dlrmx.launch.retry import decide
from dlrmx.runs.claim import claim_attempt, create_run, is_live, stop_run
from dlrmx.runs.diagnosis import diagnose
from dlrmx.runs.run_file import read_run
from dlrmx.runs.state import run_state
from fake_job import FakeJob, make_job, wait_for

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")
LONG = {"steps": 100_000, "step_s": 0.05}


@pytest.fixture
def _signals() -> Iterator[None]:
    """Keeps the signal handlers of this process, which a node process in it replaces."""
    caught = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in caught}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pids(job: FakeJob, attempt: int = 1) -> list[int]:
    """Of both workers, once they run."""
    events = wait_for(lambda: len(found := job.events(attempt, "worker_started")) == 2 and found)
    return [event["pid"] for event in events]


def gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_two_runs_at_once_from_start_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a launcher that could have made the runs: as `train --dry-run | bash` or a cluster starts them."""
    for name, value in {"PET_NPROC_PER_NODE": "1", "RANK": "5", "WORLD_SIZE": "9", "TORCHX_SESSION_NAME": "x"}.items():
        monkeypatch.setenv(name, value)  # what a shell may hold must not steer the agent
    job, other = (make_job(tmp_path, {"steps": 20}, run=f"tiny-{n}") for n in (1, 2))
    with job.start() as process, other.start() as other_process:
        assert (process.wait(), other_process.wait()) == (0, 0)
    assert run_state(other.run).state == "done"
    state = run_state(job.run)
    assert (state.state, state.exit_code, state.attempt, state.step, state.total_steps) == ("done", 0, 1, 20, 20)
    assert state.checkpoint == 20
    assert [event["event"] for event in job.events(1)][-2:] == ["finished", "attempt_ended"]
    assert [event["phase"] for event in job.events(1, "phase")] == ["prepare", "plan", "start"]
    log = job.run.attempt(1).node_log(0).read_text().splitlines()
    assert log[0].startswith("=== attempt 1, ")
    assert {"rank 0 of 2", "rank 1 of 2"} < set(log)
    # The same job once more, as a scheduler may start it: it is done.
    assert job.execute() == (0, "")
    assert run_state(job.run).attempt == 1


def test_killed_worker_killed_agent_then_the_end(tmp_path: Path) -> None:
    """Each attempt makes progress, so none of these counts against the budget of one."""
    faults = [
        {"rank": 1, "step": 3, "how": "kill", "attempts": [1]},
        {"rank": 0, "step": 4, "how": "hang", "attempts": [1]},
        {"rank": 1, "step": 6, "how": "kill_agent", "attempts": [2]},
        {"rank": 0, "step": 6, "how": "hang", "attempts": [2]},
    ]
    settings = ["retry.attempts_without_progress=1"]
    job = make_job(tmp_path, {"steps": 8, "save_every": 2, "faults": faults}, settings=settings)
    assert job.execute() == (0, "")
    assert [job.events(n, "begin")[0]["step"] for n in (1, 2, 3)] == [0, 2, 4]
    (killed,) = job.events(1, "failed")
    assert (killed["rank"], killed["cause"]) == (1, "killed")
    assert "SIGKILL" in killed["message"]
    (ended,) = job.events(1, "attempt_ended")
    told = job.events(1, "saved")[-1]["time"]
    assert ended["time"] - told < 10, "a rank that dies ends the attempt within 10 s"
    (killed,) = job.events(2, "failed")
    assert (killed["rank"], killed["cause"]) == (None, "killed")
    assert all(gone(event["pid"]) for n in (1, 2, 3) for event in job.events(n, "worker_started"))


def test_a_crash_that_repeats_stops_after_two_attempts(tmp_path: Path) -> None:
    faults = [{"rank": 1, "step": 4, "how": "tell"}, {"rank": 0, "step": 4, "how": "lose_peer"}]
    job = make_job(tmp_path, {"steps": 8, "save_every": 3, "faults": faults})
    code, _ = job.execute()
    state = run_state(job.run)
    assert (code, state.state, state.attempt, state.checkpoint) == (1, "failed", 2, 3)
    assert state.first_cause
    assert (state.first_cause.rank, state.first_cause.step, state.first_cause.cause) == (1, 4, "NaN")
    assert "at step 4 for one cause (NaN)" in state.reason
    assert job.events(2, "gave_up")


def test_a_crash_before_the_first_word_is_told_by_rank_and_error(tmp_path: Path) -> None:
    faults = [{"rank": 1, "step": None, "how": "raise"}, {"rank": 0, "step": 1, "how": "lose_peer"}]
    job = make_job(tmp_path, {"faults": faults}, settings=["retry.attempts_without_progress=1"])
    code, _ = job.execute()
    state = run_state(job.run)
    assert (code, state.attempt) == (1, 1)
    assert state.first_cause
    assert (state.first_cause.rank, state.first_cause.cause) == (1, "RuntimeError: out of luck")
    assert "1 attempt ended without a new checkpoint" in state.reason


def test_of_a_rank_that_hangs_until_the_others_wait_is_over_nobody_says_that_it_was_killed(tmp_path: Path) -> None:
    faults = [{"rank": 1, "step": 4, "how": "hang"}, {"rank": 0, "step": 4, "how": "time_out"}]
    job = make_job(tmp_path, {"steps": 8, "faults": faults}, settings=["retry.attempts_without_progress=1"])
    code, _ = job.execute()
    state = run_state(job.run)
    assert (code, state.state) == (1, "failed")
    assert state.first_cause
    assert (state.first_cause.rank, state.first_cause.cause) == (1, "hung")
    diagnosis = diagnose(job.run, state.reason, "it")
    assert diagnosis
    assert diagnosis.kind == "collective timeout"
    assert "the others waited for rank 1 on " in diagnosis.about


def test_a_disk_that_fills_to_the_last_byte_is_named_as_the_cause(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        job = make_job(disk, {"steps": 9, "faults": [{"rank": 0, "step": 4, "how": "fill_disk"}]})
        code, _ = job.execute()
        state = run_state(job.run)
        assert (code, state.state, state.exit_code) == (1, "failed", 1)
        assert "No space left on device" in state.reason
        diagnosis = diagnose(job.run, state.reason, "it")
        assert diagnosis
        assert diagnosis.kind == "disk"
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_bad_input_that_a_worker_finds_is_not_tried_again(tmp_path: Path) -> None:
    faults = [{"rank": 0, "step": 1, "how": "bad_input"}, {"rank": 1, "step": 1, "how": "lose_peer"}]
    job = make_job(tmp_path, {"faults": faults})
    code, _ = job.execute()
    state = run_state(job.run)
    assert (code, state.state, state.exit_code, state.attempt) == (2, "failed", 2, 1)


def test_sigterm_saves_stops_and_resumes(tmp_path: Path) -> None:
    """The save takes longer than others are given once a rank has died; a second node process is refused meanwhile."""
    job = make_job(tmp_path, {**LONG, "save_s": 6})
    with job.start() as process:
        pids(job)
        code, stderr = job.execute()
        assert code == 2
        assert f"already running: pid {process.pid} on " in stderr
        assert run_state(job.run).state == "running"
        os.killpg(parent_of(pids(job)[0]), signal.SIGTERM)  # a scheduler's SIGTERM reaches the agent, too
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: run_state(job.run).state == "stopping")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 75
    state = run_state(job.run)
    (stopped,) = job.events(1, "stopped")
    assert state.checkpoint
    assert (state.state, state.exit_code, state.checkpoint) == ("stopped", 75, stopped["step"])
    assert [event["by"] for event in job.events(1, "stop_requested")] == ["SIGTERM"]
    resumed = job.again({"steps": state.checkpoint + 2}, resume={"from_step": None, "after_attempt": 1})
    assert resumed.execute() == (0, "")
    assert job.events(2, "begin")[0]["step"] == state.checkpoint


@pytest.mark.slow
def test_a_save_of_45_seconds_survives_a_stop(tmp_path: Path) -> None:
    job = make_job(tmp_path, {**LONG, "save_s": 45})
    with job.start() as process:
        pids(job)
        stop_run(job.run, "me")
        assert process.wait() == 75
    assert run_state(job.run).checkpoint == job.events(1, "stopped")[0]["step"]


def test_workers_that_do_not_stop_in_the_grace_are_killed(tmp_path: Path) -> None:
    faults = [{"rank": rank, "step": 2, "how": "hang"} for rank in (0, 1)]
    job = make_job(tmp_path, {"step_s": 0, "faults": faults}, settings=["cluster.grace.minutes=0.02"])
    with job.start() as process:
        workers = pids(job)
        wait_for(lambda: run_state(job.run).step == 1)
        time.sleep(0.5)
        stop_run(job.run, "me")
        assert process.wait() == 1
    state = run_state(job.run)
    assert (state.state, state.attempt) == ("failed", 1), "who asks to stop wants no retry"
    assert "did not save within the grace of 1.2 s" in state.reason
    assert all(map(gone, workers))


def test_a_killed_node_process_takes_all_with_it_and_the_run_is_lost(tmp_path: Path) -> None:
    job = make_job(tmp_path, {**LONG, "save_every": 2})
    with job.start() as process:
        workers = pids(job)
        agent = parent_of(workers[0])
        wait_for(lambda: job.events(1, "saved"))
        process.kill()
    wait_for(lambda: all(map(gone, [*workers, agent])), seconds=5)
    state = run_state(job.run)
    assert (state.state, state.exit_code) == ("lost", None)
    assert state.first_cause
    assert f"pid {process.pid}" in state.first_cause.message
    assert not is_live(job.run)
    # Started again, as a scheduler requeues it, it goes on from the newest checkpoint.
    assert state.checkpoint
    assert job.again({"steps": state.checkpoint + 1}).execute() == (0, "")
    assert job.events(2, "begin")[0]["step"] == state.checkpoint


def test_a_run_that_is_deleted_ends(tmp_path: Path) -> None:
    job = make_job(tmp_path, LONG)
    with job.start() as process:
        workers = pids(job)
        shutil.rmtree(job.run.dir)
        assert process.wait(timeout=240) != 0
    assert all(map(gone, workers))
    assert not job.run.dir.exists()


def test_what_must_not_start_does_not(tmp_path: Path) -> None:
    """Another recipe's run, another version, another plan, no good checkpoint: exit code 2, and why."""
    job = make_job(tmp_path, {})
    create_run(Path(job.spec.root), "tiny", "tiny-1", "another recipe")
    before = job.run.run.read_bytes()
    code, stderr = job.execute()
    assert code == 2
    assert "is of another recipe" in stderr
    assert job.run.run.read_bytes() == before
    other = job.again(run="tiny-2")
    code, stderr = other.again(dlrmx="0.0.1").execute()
    assert code == 2
    assert f"the job is of dlrmx 0.0.1, this is {__version__}" in stderr
    assert run_state(other.run).state == "failed"
    code, _ = other.again(plan_hash="0" * 16).execute()
    assert code == 2
    assert "asks for 0000000000000000" in run_state(other.run).reason
    damaged = other.run.checkpoint(2)
    damaged.mkdir(parents=True)
    (damaged / "manifest.json").write_text("{}")
    assert other.execute()[0] == 2
    assert "no checkpoint of run tiny-2 is good:\nstep-00000002: " in run_state(other.run).reason


def test_a_run_that_another_version_began_goes_on_where_all_its_settings_are_the_same(tmp_path: Path) -> None:
    job = make_job(tmp_path, {})
    run = create_run(Path(job.spec.root), "tiny", "tiny-1", "an older schema's")
    claim_attempt(run).recipe.write_text(job.spec.recipe)
    assert job.again(resume={"from_step": None, "after_attempt": 1}).execute() == (0, "")


@pytest.mark.usefixtures("_signals")
def test_a_stop_between_two_attempts_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is asked of an attempt after it has failed, and before the next one is there to hear of it."""
    faults = [{"rank": rank, "step": 1, "how": how} for rank, how in enumerate(("tell", "lose_peer"))]
    job = make_job(tmp_path, {"faults": faults})

    def stopped_meanwhile(*args: Any, **settings: Any) -> Any:
        stop_run(job.run, "me")
        return decide(*args, **settings)

    monkeypatch.setattr(node, "decide", stopped_meanwhile)
    assert node.run_node(job.spec, worker=(str(FAKE_WORKER),)) == 75
    state = run_state(job.run)
    assert (state.state, state.attempt) == ("stopped", 2)
    assert not job.events(2, "worker_started")


def test_interrupted_twice_it_ends_at_once(tmp_path: Path) -> None:
    job = make_job(tmp_path, {**LONG, "save_s": 3600})
    with job.start() as process:
        workers = pids(job)
        process.send_signal(signal.SIGINT)
        wait_for(lambda: job.events(1, "saving"))
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert time.monotonic() - asked < 60, "its save takes an hour"
    assert all(map(gone, workers))
    fields = read_run(job.run)
    assert (fields["state"], fields["exit_code"]) == ("failed", 130)
    assert run_state(job.run).checkpoint is None
