"""What every Slurm from 20.11 to 25.x prints, and what it means. The outputs are as the real commands print them."""

import pytest
from torchx.specs import AppState

from dlrmx.launch.slurm_state import app_state, from_sacct, from_scontrol, from_squeue, jobs_of

SHOWN = (  # scontrol show job -o, 22.05, shortened
    "JobId=12 JobName=ctr-1 UserId=me(1000) GroupId=me(1000) MCS_label=N/A Priority=1 Nice=0 Account=ads QOS=normal "
    "JobState={state} Reason={reason} Dependency=(null) Requeue={requeue} Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:9 "
    "StartTime={start} EndTime=Unknown Partition=a100 ReqNodeList=(null) ExcNodeList=(null) NodeList=n[0-3]"
)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("CANCELLED by 1000", AppState.CANCELLED),  # X2
        ("CANCELLED+", AppState.CANCELLED),
        ("COMPLETING", AppState.RUNNING),
        ("RUNNING+COMPLETING", AppState.RUNNING),  # flags behind the state: scontrol of 24.x
        ("CONFIGURING", AppState.PENDING),
        ("REQUEUED", AppState.PENDING),
        ("REQUEUE_HOLD", AppState.PENDING),
        ("SPECIAL_EXIT", AppState.PENDING),
        ("SUSPENDED", AppState.RUNNING),
        ("STAGE_OUT", AppState.RUNNING),
        ("COMPLETED", AppState.SUCCEEDED),
        ("TIMEOUT", AppState.FAILED),
        ("OUT_OF_MEMORY", AppState.FAILED),
        ("DEADLINE", AppState.FAILED),
        ("A_STATE_OF_2030", AppState.UNKNOWN),
    ],
)
def test_every_state_has_a_meaning(said: str, state: AppState) -> None:
    assert app_state(said) == state


def test_a_waiting_job_says_why_and_until_when() -> None:
    state = from_squeue("12|PENDING|Resources|2026-11-30T20:00:00|\n", "12")
    assert state
    assert (state.state, state.reason) == (
        AppState.PENDING,
        "waits for Resources; expected to start at 2026-11-30T20:00:00",
    )
    unknown = from_squeue("12|PENDING|PartitionTimeLimit|N/A|\n", "12")
    assert unknown
    assert unknown.reason == "PartitionTimeLimit: `time` is above the partition's limit"
    nodes = from_squeue("12|PENDING|(ReqNodeNotAvail, UnavailableNodes:n2)|N/A|\n", "12")
    assert nodes
    assert "sinfo -R" in nodes.reason


def test_any_failed_part_fails_the_job() -> None:
    """X1: torchx takes the last row for the whole."""
    state = from_squeue("12+0|FAILED|NonZeroExitCode|N/A|n0\n12+1|COMPLETED|None|N/A|n1\n", "12")
    assert state
    assert state.state == AppState.FAILED
    rows = from_sacct(
        "12_1|FAILED|3:0|n0\n12_1.batch|FAILED|3:0|n0\n12_2|COMPLETED|0:0|n1\n12_2.batch|COMPLETED|0:0|n1\n", "12"
    )
    assert rows
    assert (rows.state, rows.exit_code) == (AppState.FAILED, 3)
    running = from_squeue("12_1|RUNNING|None|N/A|n0\n12_2|COMPLETED|None|N/A|n1\n", "12")
    assert running
    assert running.state == AppState.RUNNING


def test_rows_of_other_jobs_and_steps_are_not_the_job() -> None:
    assert from_squeue("123|FAILED|None|N/A|n0\n", "12") is None
    state = from_sacct(
        "12|COMPLETED|0:0|n[0-3]\n12.batch|COMPLETED|0:0|n0\n12.extern|COMPLETED|0:0|n0\n12.0|CANCELLED by 0|0:15|n1\n",
        "12",
    )
    assert state
    assert state.state == AppState.SUCCEEDED


def test_memory_that_ran_out_in_a_step_is_told() -> None:
    state = from_sacct("12|FAILED|9:0|n[0-3]\n12.0|OUT_OF_MEMORY|0:125|n2\n", "12")
    assert state
    assert (state.slurm, state.nodes) == ("OUT_OF_MEMORY", "n2")
    assert "host memory" in state.reason


@pytest.mark.parametrize("word", ["PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"])
def test_what_slurm_runs_again_has_not_ended(word: str) -> None:
    """X5, and slurm.md 5: terminal is not terminal."""
    line = SHOWN.format(state=word, reason="None", start="2026-11-30T20:00:00", requeue="1")
    again = from_scontrol(line)
    assert again
    assert (again.state, again.restarts) == (AppState.PENDING, 2)
    assert "runs it again" in again.reason
    over = from_scontrol(line.replace("Requeue=1", "Requeue=0"))
    assert over
    assert (over.state, over.exit_code) == (AppState.FAILED, 137)


def test_a_requeued_job_waits() -> None:
    line = SHOWN.format(state="PENDING", reason="BeginTime", start="2026-11-30T20:02:00", requeue="1")
    state = from_scontrol(line)
    assert state
    assert (state.state, state.slurm) == (AppState.PENDING, "PENDING")
    assert state.reason.endswith("after each requeue; expected to start at 2026-11-30T20:02:00")


@pytest.mark.parametrize("text", ["", "\n", "no such thing", "12|RUNNING\n", "JobId=12\n"])
def test_what_is_no_answer_says_nothing(text: str) -> None:
    assert from_squeue(text, "12") is from_sacct(text, "12") is from_scontrol(text) is None


def test_jobs_of_ours_are_told_by_their_comment() -> None:
    output = "12|ctr-1|RUNNING|dlrmx /scratch/me/ctr-1\n13|bash|RUNNING|\n14|x|PENDING|a|b\n"
    assert list(jobs_of(output, "dlrmx ")) == [("12", "ctr-1", AppState.RUNNING, "/scratch/me/ctr-1")]


def test_a_name_that_has_not_reached_the_accounts_is_none() -> None:
    for said, name in (("ctr-1", "ctr-1"), ("allocation", "")):
        state = from_sacct(f"12|FAILED|1:0|n0|{said}\n12.batch|FAILED|1:0|n0|batch\n", "12")
        assert state
        assert state.name == name
