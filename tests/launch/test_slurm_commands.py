"""Slurm's commands, played by scripts: what they say when they are not there, do not answer or refuse."""

import os
from pathlib import Path

import pytest
from torchx.specs import AppState

from dlrmx.errors import ClusterError, Unanswered
from dlrmx.launch import slurm_commands
from dlrmx.launch.slurm import SlurmScheduler, look
from dlrmx.launch.slurm_commands import AccountsAway, NoAccounting, NoSuchJob, clean, job_number, slurm, stray_variables
from dlrmx.runs.layout import RunPaths

ACCOUNTS_AWAY = """\
sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:db:6819: refused
sacct: error: Problem talking to the database: Connection refused
"""


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def command(name: str, *, out: str = "", err: str = "", code: int = 0, first: str = "") -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text(out)
        (tmp_path / "out" / f"{name}.err").write_text(err)
        text = f'#!/bin/bash\n{first}\ncat "{tmp_path}/out/{name}"\ncat "{tmp_path}/out/{name}.err" >&2\nexit {code}\n'
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    return command


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Batch job submission failed: Invalid account or account/partition combination specified", "account in the"),
        ("invalid partition specified: nope", "partition in the cluster profile"),
        ("Batch job submission failed: Invalid qos specification", "qos in the cluster profile"),
        ("Batch job submission failed: Requested node configuration is not available", "sinfo -N -l"),
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "time in the"),
        ("Batch job submission failed: Node count specification invalid", "nodes in the cluster profile"),
        ("Invalid feature specification", "constraint in the cluster profile"),
        ("Invalid generic resource (gres) specification", "gpus in the cluster profile"),
        ("unrecognized option '--no-bell'", "sbatch in the cluster profile"),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", "scontrol ping"),
    ],
)
def test_a_refusal_names_the_setting(play, said: str, told: str) -> None:  # type: ignore[no-untyped-def]
    play("sbatch", err=f"sbatch: error: {said}\n", code=1)
    with pytest.raises(ClusterError) as refused:
        slurm("sbatch", "--parsable", "x")
    assert refused.value.exit_code == 3
    assert said in refused.value.what
    assert told in refused.value.hint


def test_no_slurm_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="there is no sbatch on this machine\n.*--dry-run"):
        slurm("sbatch")


def test_a_controller_that_does_not_answer(play, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(slurm_commands, "PATIENCE_S", 0.3)
    play("squeue", first="exec sleep 30")
    with pytest.raises(ClusterError, match="squeue did not answer within 0.3 s"):
        slurm("squeue")


def test_stray_variables_of_the_shell_reach_no_command(play, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """slurm.md 16: SBATCH_* beat the script."""
    strays = {
        "SBATCH_QOS": "x",
        "SBATCH_NO_REQUEUE": "1",
        "SRUN_EXPORT_ENV": "NONE",
        "SLURM_JOB_ID": "7",
        "SQUEUE_FORMAT": "%i",
    }
    for name, value in {**strays, "SLURM_CONF": "/etc/slurm.conf", "WANDB_API_KEY": "secret"}.items():
        monkeypatch.setenv(name, value)
    assert stray_variables(os.environ) == sorted(strays)
    assert not set(strays) & set(clean(os.environ))
    play("sbatch", first="printenv | grep -E '^(SBATCH|SRUN|SLURM|SQUEUE|WANDB)'")
    assert sorted(slurm("sbatch").split()) == ["SLURM_CONF=/etc/slurm.conf", "WANDB_API_KEY=secret"]


def test_the_state_is_that_of_the_queue_then_of_the_accounts_then_of_the_controller(play) -> None:  # type: ignore[no-untyped-def]
    """X4, slurm.md 2: no accounting, no state."""
    play("squeue", out="12|RUNNING|None|2026-11-30T20:00:00|n0\n")
    play("sacct", err="Slurm accounting storage is disabled\n", code=1)
    play("scontrol", out="JobId=12 JobState=COMPLETED Reason=None Requeue=1 Restarts=1 ExitCode=0:0 NodeList=n0\n")
    running = look("12")
    assert running
    assert running.state == AppState.RUNNING
    play("squeue", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    done = look("12")
    assert done
    assert (done.state, done.restarts) == (AppState.SUCCEEDED, 1)
    play("sacct", out="12|FAILED|3:0|n0\n12.batch|FAILED|3:0|n0\n")
    failed = look("12")
    assert failed
    assert (failed.state, failed.exit_code) == (AppState.FAILED, 3)
    play("sacct", out="")
    play("scontrol", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert look("12") is None


def test_a_preempted_job_that_will_run_again_waits(play) -> None:  # type: ignore[no-untyped-def]
    play("squeue", out="12|PREEMPTED|None|N/A|n0\n")
    play("scontrol", out="JobId=12 JobState=PREEMPTED Reason=None Requeue=1 Restarts=0 NodeList=n0\n")
    play("sacct", out="12|PREEMPTED|0:0|n0\n")
    again = look("12")
    assert again
    assert again.state == AppState.PENDING


def test_the_accounts_may_be_behind(play) -> None:  # type: ignore[no-untyped-def]
    play("squeue", out="12|COMPLETED|None|N/A|n0\n")
    play("sacct", out="12|RUNNING|0:0|n0\n")
    done = look("12")
    assert done
    assert done.state == AppState.SUCCEEDED


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("slurm_load_jobs error: Invalid job id specified", NoSuchJob),
        ("Slurm accounting storage is disabled", NoAccounting),
    ],
)
def test_what_is_not_there_is_told_apart(play, said: str, kind: type[ClusterError]) -> None:  # type: ignore[no-untyped-def]
    play("squeue", err=said, code=1)
    with pytest.raises(kind):
        slurm("squeue", "-j", "12")


@pytest.mark.parametrize("said", ["77\n", "77;cluster\n", "Welcome; 90% of your quota is used\n77\n"])
def test_the_jobs_number_is_found_behind_what_a_site_says(said: str) -> None:
    assert job_number(said) == "77"


@pytest.mark.parametrize("said", ["", "sbatch: lua: Submitted job 77 to gpu\n", "77\nbye\n"])
def test_without_a_number_it_is_not_known_whether_there_is_a_job(said: str) -> None:
    with pytest.raises(Unanswered, match="printed no job number"):
        job_number(said)


def test_bytes_that_are_no_text_are_no_fault(play) -> None:  # type: ignore[no-untyped-def]
    play("sbatch", first=r"printf '77\n'; printf '\xff\xfe quota\n' >&2")
    assert slurm("sbatch") == "77\n"
    play("sbatch", first=r"printf '\xff refused\n' >&2", code=1)
    with pytest.raises(ClusterError, match="refused"):
        slurm("sbatch")


def test_a_command_that_cannot_be_run_or_is_killed(play, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    play("sbatch")
    (tmp_path / "sbatch").write_bytes(b"garbage")
    with pytest.raises(ClusterError, match="sbatch cannot be run on this machine: Exec format error") as refused:
        slurm(str(tmp_path / "sbatch"))
    assert not isinstance(refused.value, Unanswered)
    play("sbatch", first="kill -9 $$")
    with pytest.raises(Unanswered, match="killed by signal 9"):
        slurm("sbatch")


def test_while_the_accounts_are_away_the_controller_tells(play) -> None:  # type: ignore[no-untyped-def]
    play("squeue", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    play("sacct", err=ACCOUNTS_AWAY, code=1)
    play(
        "scontrol", out="JobId=12 JobName=r JobState=FAILED Reason=NonZeroExitCode Requeue=1 Restarts=0 ExitCode=1:0\n"
    )
    failed = look("12")
    assert failed
    assert (failed.state, failed.name) == (AppState.FAILED, "r")
    play("scontrol", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    with pytest.raises(AccountsAway, match="slurmdbd"):  # it may stand in them
        look("12")


def test_a_runs_job_is_found_by_its_folder(play, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows = [f"11|r|COMPLETED|dlrmx {tmp_path}/r", f"12|r|PENDING|dlrmx {tmp_path}/r", "13|r|PENDING|dlrmx /else/r"]
    play("squeue", out="\n".join([*rows, "14|x|RUNNING|(null)", ""]))
    assert SlurmScheduler("x").find(RunPaths(tmp_path / "r")) == "12"
    assert SlurmScheduler("x").find(RunPaths(tmp_path / "s")) == ""


def test_a_jobs_name_is_told_so_that_another_of_its_number_is_not_taken_for_it(play) -> None:  # type: ignore[no-untyped-def]
    play("squeue", out="12|RUNNING|None|N/A|n0|other-1\n")
    described = SlurmScheduler("x").describe("12")
    assert described
    assert described.metadata == {"name": "other-1"}


def test_a_node_that_cannot_write_says_so_by_its_exit_code(play) -> None:  # type: ignore[no-untyped-def]
    play("squeue", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    play("sacct", out="12|FAILED|73:0|n0|r\n12.batch|FAILED|73:0|n0|batch\n")
    failed = look("12")
    assert failed
    assert "`root` must be on a disk that all nodes" in failed.reason
