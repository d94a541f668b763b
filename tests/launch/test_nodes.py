"""Several node processes of one job, with real agents and fake workers: together to the end, however it comes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dlrmx.launch.place import free_port
from dlrmx.runs.run_file import read_run
from dlrmx.runs.state import run_state
from fake_job import FAKE_NODE, PATIENCE_S, FakeJob, make_job, wait_for

LONG = {"steps": 100_000, "step_s": 0.05, "save_every": 2}


def make_nodes(folder: Path, fake: dict[str, Any], *settings: str, workers: int = 1, nodes: int = 2) -> FakeJob:
    job = make_job(folder, fake, settings=[f"cluster.workers_per_node={workers}", *settings])
    profile = job.profile.model_copy(update={"nodes": nodes})
    return FakeJob(replace(job.spec, profile=profile.model_dump(mode="json")), profile)


@contextmanager
def started(
    job: FakeJob, port: int, *, wrap: Sequence[str] = (), nodes: int = 2
) -> Iterator["list[subprocess.Popen[str]]"]:
    """The job's node processes, node 0 last. wrap: what runs the others' command."""
    with ExitStack() as stack:
        processes = {}
        for node in reversed(range(nodes)):
            place = {"DLRMX_RENDEZVOUS": f"localhost:{port}", "DLRMX_NODE_RANK": str(node), "DLRMX_APP": "7"}
            env = {**os.environ, "DLRMX_JOB": job.spec.to_variable(), **place}
            words = [*(wrap if node else ()), sys.executable, str(FAKE_NODE)]
            processes[node] = stack.enter_context(
                subprocess.Popen(words, env=env, text=True, stderr=subprocess.PIPE, start_new_session=True)
            )
            stack.callback(_kill_group, processes[node].pid)
        yield [processes[node] for node in range(nodes)]


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def codes(processes: "list[subprocess.Popen[str]]") -> list[int]:
    return [process.wait(timeout=PATIENCE_S) for process in processes]


def test_two_jobs_of_two_nodes_with_one_port_never_meet(tmp_path: Path) -> None:
    port = free_port()
    job = make_nodes(tmp_path / "one", {"steps": 10}, workers=2)
    other = make_nodes(tmp_path / "other", {"steps": 10})
    with started(job, port) as processes, started(other, port) as others:
        assert (codes(processes), codes(others)) == ([0, 0], [0, 0])
    assert [run_state(each.run).state for each in (job, other)] == ["done", "done"]
    assert {event["rank"] for event in job.events(1, "worker_started")} == {0, 1, 2, 3}
    assert {event["rank"] for event in other.events(1, "worker_started")} == {0, 1}
    logs = [job.run.attempt(1).node_log(node).read_text() for node in (0, 1)]
    assert ["rank 1 of 4" in log for log in logs] == [True, False]
    assert ["rank 3 of 4" in log for log in logs] == [False, True]
    assert read_run(job.run)["job"] == {"scheduler": "local", "app": "7"}


def test_a_worker_of_another_node_dies_and_all_try_again(tmp_path: Path) -> None:
    """rank 2 is on node 1; the others hang, as in a collective that it does not come to."""
    hang = [{"rank": rank, "step": 4, "how": "hang", "attempts": [1]} for rank in (0, 1, 3)]
    faults = [{"rank": 2, "step": 3, "how": "kill", "attempts": [1]}, *hang]
    job = make_nodes(tmp_path, {"steps": 6, "save_every": 2, "faults": faults}, workers=2)
    with started(job, free_port()) as processes:
        assert codes(processes) == [0, 0]
    (killed,) = job.events(1, "failed")
    assert (killed["rank"], killed["cause"]) == (2, "killed")
    assert "SIGKILL" in killed["message"]
    assert job.events(2, "begin")[0]["step"] == 2
    assert len(job.events(2, "worker_started")) == 4


def test_a_stop_that_only_one_node_hears_of_stops_all_at_one_step(tmp_path: Path) -> None:
    job = make_nodes(tmp_path, LONG)
    with started(job, free_port()) as processes:
        wait_for(lambda: job.events(1, "saved"))
        processes[1].send_signal(signal.SIGUSR1)
        assert codes(processes) == [75, 75]
    state = run_state(job.run)
    (stopped,) = job.events(1, "stopped")
    assert (state.state, state.exit_code, state.checkpoint) == ("stopped", 75, stopped["step"])
    assert job.events(1, "stop_requested")[0]["by"] == f"SIGUSR1 on {socket.gethostname()}"


def test_a_stop_while_node_0_waits_for_the_others_ends_it(tmp_path: Path) -> None:
    job = make_nodes(tmp_path, LONG)
    with started(job, free_port(), nodes=1) as (alone,):
        wait_for(lambda: job.run.attempts())
        alone.send_signal(signal.SIGTERM)
        assert alone.wait(PATIENCE_S) == 75
    assert run_state(job.run).state == "stopped"
    assert not job.events(1, "worker_started")


def test_a_lost_node_ends_the_attempt_and_the_next_start_goes_on(tmp_path: Path) -> None:
    job = make_nodes(tmp_path, LONG)
    with started(job, free_port()) as processes:
        wait_for(lambda: job.events(1, "saved"))
        processes[1].kill()
        assert processes[0].wait(PATIENCE_S) == 75, "start it again"
    state = run_state(job.run)
    assert (state.state, state.exit_code, state.ended) == ("waiting", None, False)
    (lost,) = job.events(1, "failed")
    assert (lost["cause"], lost["rank"], lost["host"]) == ("lost", None, socket.gethostname())
    assert "node 1 of 2 was lost: " in lost["message"]
    assert state.checkpoint
    again = job.again({"steps": state.checkpoint + 3})
    with started(again, free_port()) as processes:
        assert codes(processes) == [0, 0]
    assert job.events(2, "begin")[0]["step"] == state.checkpoint


def test_a_node_that_is_taken_away_before_it_has_saved_is_no_failure(tmp_path: Path) -> None:
    """Told to go, then killed, as a machine that is drained: with exit code 1 an Indexed Job would end as failed."""
    job = make_nodes(tmp_path, {**LONG, "save_every": 10**6, "save_s": 3600})
    with started(job, free_port()) as processes:
        wait_for(lambda: job.events(1, "begin"))
        processes[1].send_signal(signal.SIGTERM)
        wait_for(lambda: job.events(1, "saving"))
        processes[1].kill()
        assert processes[0].wait(PATIENCE_S) == 75, "start it again"
    assert run_state(job.run).state == "waiting"
    assert job.events(1, "failed")[0]["cause"] == "lost"


def test_a_node_that_is_lost_again_and_again_ends_the_run(tmp_path: Path) -> None:
    job = make_nodes(tmp_path, {**LONG, "save_every": 10**6}, "retry.attempts_without_progress=2")
    ends = []
    for attempt in (1, 2):
        with started(job, free_port()) as processes:
            wait_for(partial(job.events, attempt, "begin"))
            processes[1].kill()
            ends.append(processes[0].wait(PATIENCE_S))
    assert ends == [75, 1]
    assert "2 attempts in a row ended without a new checkpoint" in run_state(job.run).reason
    with started(job, free_port()) as processes:
        assert codes(processes) == [1, 1], "once more, as a scheduler may start it: it has given up"
    assert run_state(job.run).attempt == 2


def test_the_next_start_of_a_job_has_the_one_before_save_and_end(tmp_path: Path) -> None:
    """Slurm may take a node for dead whose processes live on. A job of one node has no others to miss it."""
    job = make_nodes(tmp_path, LONG, nodes=1)
    with started(job, 0, nodes=1) as (old,):
        wait_for(lambda: job.events(1, "saved"))
        with started(job, 0, nodes=1) as (new,):
            begun = wait_for(lambda: job.events(2, "begin"))
            assert old.wait(PATIENCE_S) == 75
            assert begun[0]["step"] == job.events(1, "stopped")[0]["step"]
            assert job.events(1, "attempt_ended")[0]["time"] < job.events(2, "claimed")[0]["time"]
            assert "the next start of its job" in job.events(1, "stop_requested")[0]["by"]
            new.send_signal(signal.SIGTERM)
            assert new.wait(PATIENCE_S) == 75


def test_without_node_0_the_others_end(tmp_path: Path) -> None:
    job = make_nodes(tmp_path, LONG)
    with started(job, free_port()) as processes:
        workers = wait_for(lambda: len(found := job.events(1, "worker_started")) == 2 and found)
        processes[0].kill()
        assert processes[1].wait(PATIENCE_S) == 75, "the job is to be started again"
    alive = [event["pid"] for event in workers if Path(f"/proc/{event['pid']}").exists()]
    wait_for(lambda: not [pid for pid in alive if _runs(pid)], seconds=5)
    assert run_state(job.run).state == "lost"


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, to mount")
def test_nodes_that_share_no_disk_train_without_checkpoints(tmp_path: Path) -> None:
    """Node 1 sees an empty folder where node 0 has the run."""
    root = tmp_path / "runs"
    root.mkdir()
    job = make_nodes(tmp_path, {"steps": 5, "save_every": 10**6, "shared": False}, "checkpoint.save=false")
    hide = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{root}" && exec "$@"', "sh"]
    with started(job, free_port(), wrap=hide) as processes:
        assert codes(processes) == [0, 0], processes[1].stderr.read() if processes[1].stderr else ""
    assert run_state(job.run).state == "done"
    assert {event["rank"] for event in job.events(1, "worker_started")} == {0, 1}
    assert not job.run.attempt(1).node_log(1).exists(), "it lies on node 1"
