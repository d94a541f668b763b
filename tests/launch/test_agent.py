import subprocess
import time
from pathlib import Path

import pytest

from dlrmx.launch import agent
from dlrmx.launch.agent import Watch, agent_env
from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.events import append_event


def test_the_agent_gets_the_shell_without_what_would_steer_it() -> None:
    shell = {
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "64",
        "TORCHX_SESSION_NAME": "x",
        "TORCHELASTIC_ERROR_FILE": "/tmp/x",
        "PET_NNODES": "4",
        "DLRMX_JOB": "{}",
        "DLRMX_PARENT": "1",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "MASTER_PORT": "29500",
    }
    env = agent_env(shell, {"OF_PROFILE": "a,b $c"}, workers=1000)
    assert env == {
        "PATH": "/bin",
        "NCCL_DEBUG": "INFO",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
        "OMP_NUM_THREADS": "1",
        "OF_PROFILE": "a,b $c",
    }


def test_the_profile_has_the_last_word() -> None:
    assert agent_env({}, {"OMP_NUM_THREADS": "7"}, workers=1)["OMP_NUM_THREADS"] == "7"


def test_a_job_that_is_given_some_of_a_nodes_processors_takes_no_more() -> None:
    """Slurm counts processors, and need not bind a job to its own."""
    assert agent_env({"SLURM_CPUS_PER_TASK": "1"}, {}, workers=1)["OMP_NUM_THREADS"] == "1"
    free = agent_env({}, {}, workers=1)["OMP_NUM_THREADS"]
    assert agent_env({"SLURM_CPUS_PER_TASK": "100000"}, {}, workers=1)["OMP_NUM_THREADS"] == free


def test_an_agent_whose_workers_have_saved_does_not_wait_for_one_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.distributed.run waits five minutes for the agents of all nodes before it ends."""
    monkeypatch.setattr(agent, "AFTER_DEATH_S", 0.5)
    monkeypatch.setattr(agent, "AGENT_END_S", 0.1)
    attempt = claim_attempt(create_run(tmp_path, "ctr", None, "f"))
    with subprocess.Popen(["true"]) as worker:
        pass
    append_event(attempt, "worker_started", rank=0, pid=worker.pid)
    append_event(attempt, "stopped", step=7)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as waiting:
        watch = Watch(
            waiting, attempt, 1, 600.0, stop_asked=lambda: True, killed=lambda: False, others_over=lambda: True
        )
        began = time.monotonic()
        end = watch.wait()
    assert time.monotonic() - began < 30
    assert (end.ended, [one.pid for one in end.gone]) == ("others_over", [worker.pid])
