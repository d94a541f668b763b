"""Each kind of failure by what was really said of one: by torch, gloo, NCCL, Slurm, Kubernetes, or dlrmx itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlrmx.runs import kinds
from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.diagnosis import Diagnosis, diagnose
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import append_record

BY_ROWS = [[0, 1000, 0, 64, 0, 2, "hbm", 0]]
WHOLE = [[0, 100, 0, 64, 1, 1, "hbm", 0]]
# 1,000 x 64 fp32 by rows on two ranks; 100 x 64 fp16 whole on rank 1; 10 x 64 fp32 on every rank.
PLAN = {
    "version": 2, "world": 4, "ranks_per_node": 2, "notes": [],
    "tables": {
        "item": {"rows": 1000, "dim": 64, "dtype": "fp32", "kind": "row_wise", "strips": BY_ROWS},
        "page": {"rows": 100, "dim": 64, "dtype": "fp16", "kind": "table_wise", "strips": WHOLE},
        "day": {"rows": 10, "dim": 64, "dtype": "fp32", "kind": "data_parallel", "strips": []},
    },
}  # fmt: skip

CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.17 GiB is "
    "free. Including non-PyTorch memory, this process has 77.92 GiB memory in use."
)
CPU_ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4503599627370496 bytes. Error code 12 (Cannot allocate memory)"
)
GLOO_WAITED = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 3000ms for "
    "send operation to complete"
)
GLOO_CLOSED = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:549] Connection closed by peer [127.0.0.1]:31447"
)
NCCL_WAITED = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLTOALL_BASE, NumelIn=64, "
    "NumelOut=64, Timeout(ms)=1800000) ran for 1800046 milliseconds before timing out."
)
NO_ADDRESS = (
    "[enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to "
    "find address for: nope0"
)
UNDEFINED = "/venv/fbgemm_gpu/fbgemm_gpu_py.so: undefined symbol: _ZN3c104impl3cow11cow_deleterEPv"

# What was said of the failure of rank 1 at step 7 (cause, message), and the kind.
TOLD_BY_A_RANK = [
    ("OutOfMemoryError", CUDA, "out of GPU memory"),
    ("RuntimeError", CPU_ALLOCATOR, "out of host memory"),
    ("MemoryError", "Unable to allocate 3.73 TiB for an array", "out of host memory"),
    ("NonFinite", "the loss is not finite at step 7 on rank 1 (batch: epoch 0, rows 896 to 960)", "NaN or infinity"),
    (
        "SaveError",
        "the checkpoint of step 7 was not saved: rank 1: rank-0001.safetensors: No space left on device (ENOSPC)",
        "disk",
    ),
    ("OSError", "[Errno 122] Disk quota exceeded", "disk"),
    ("RuntimeError", NCCL_WAITED, "collective timeout"),
    ("killed", "pid 4711 on n2 was killed by SIGKILL: out of memory?", "killed"),
    ("killed", "did not save within the grace of 60 s after the stop request", "stopped before it had saved"),
    ("killed", "killed on request, without saving", "killed on request"),
    ("RuntimeError", GLOO_CLOSED, "connection lost"),
    ("RuntimeError", NO_ADDRESS, "network set-up"),
    ("SIGSEGV", "pid 9 on n0 was killed by SIGSEGV", "crash"),
    ("AcceleratorError", "CUDA error: an illegal memory access was encountered", "GPU fault"),
    ("OSError", UNDEFINED, "installation"),
    ("ModuleNotFoundError: No module named 'fbgemm_gpu'", "pid 9 ended with exit code 1", "installation"),
    ("KeyError", "'item'", "software"),
]
# What a node process says of the job.
TOLD_BY_A_NODE = [
    ("lost", "node 2 of 4 was lost: nothing was heard of it for 30 s", "node failure"),
    ("lost", "node 3 of 4 was lost: did not join within 900 s: see launch.log", "node failure"),
]
# What the schedulers' modules make of a job's end (tests/launch/test_slurm_state.py, test_kube_phases.py).
TOLD_BY_A_SCHEDULER = [
    ("job 12: PREEMPTED: another job took its nodes", "preempted"),
    ("job 12: NODE_FAIL: a node died", "node failure"),
    ("job 12: TIMEOUT: its time limit was over: raise `time`, or `grace` where it did not save in time", "time limit"),
    ("job 12: OUT_OF_MEMORY: a node ran out of host memory: ask for more (sbatch.mem)", "out of host memory"),
    ("job 12: CANCELLED", "killed on request"),
    ("job 12: FAILED: its node cannot write the run's folder: `root` must be on a disk", "no shared folder"),
    ("job ctr-1: ctr-1-node-0 on node-b ran out of host memory (OOMKilled): raise memory_gib", "out of host memory"),
    ("job ctr-1: ctr-1-node-1 on node-b ended with exit code 137", "killed"),
    ("job ctr-1: ctr-1-node-1 on node-b ended with exit code 139", "crash"),
    ("job ctr-1: ctr-1-node-0 on node-b: Evicted: The node was low on resource: memory.", "preempted"),
    ("image registry/ctr:1 cannot be pulled (ImagePullBackOff): is its name right?", "bad image"),
]


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    run = create_run(tmp_path, "ctr", None, "f" * 12)
    attempt = claim_attempt(run)
    attempt.plan.write_text(json.dumps(PLAN))
    attempt.recipe.write_text("dlrmx: 1\n")
    for rank in range(4):
        append_event(attempt, "worker_started", rank=rank, host=f"n{rank // 2}")
    append_record(attempt, kind="step", step=6, rss_bytes=3 * 2**30)
    return run


def fail(run: RunPaths, rank: int | None, cause: str, message: str, **fields: Any) -> None:
    given = {"step": 7, "primary": True, **fields}
    append_event(run.attempts()[-1], "failed", rank=rank, cause=cause, message=message, host="n0", **given)


def found(run: RunPaths, reason: str = "") -> Diagnosis:
    diagnosis = diagnose(run, reason, "ctr-1")
    assert diagnosis is not None
    return diagnosis


@pytest.mark.parametrize(("cause", "message", "kind"), TOLD_BY_A_RANK)
def test_kinds_that_a_rank_tells_of(run: RunPaths, cause: str, message: str, kind: str) -> None:
    fail(run, 1, cause, message)
    assert (found(run).kind, found(run).attempt) == (kind, 1)


@pytest.mark.parametrize(("cause", "message", "kind"), TOLD_BY_A_NODE)
def test_kinds_that_the_first_node_tells_of(run: RunPaths, cause: str, message: str, kind: str) -> None:
    fail(run, None, cause, message)
    assert found(run).kind == kind


@pytest.mark.parametrize(("reason", "kind"), TOLD_BY_A_SCHEDULER)
def test_kinds_that_a_scheduler_tells_of(run: RunPaths, reason: str, kind: str) -> None:
    append_event(run.attempt(1), "attempt_ended", outcome="failed", step=7)
    assert found(run, reason).kind == kind


def every_case() -> list[tuple[str, str, str, str]]:
    told = [(cause, message, "", kind) for cause, message, kind in [*TOLD_BY_A_RANK, *TOLD_BY_A_NODE]]
    return [*told, *(("", "", reason, kind) for reason, kind in TOLD_BY_A_SCHEDULER)]


@pytest.mark.parametrize("left_out", [kind.name for kind in kinds.KINDS[:-1]])
def test_each_rule_is_needed(run: RunPaths, monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    """Without its rule, no kind is found: by no other one, and by no case here that another rule would take."""
    monkeypatch.setattr(kinds, "KINDS", [kind for kind in kinds.KINDS if kind.name != left_out])
    cases = [*every_case(), ("", "", "", "node process lost"), ("InputError", "x", "", "bad input")]
    (case, *_) = [case for case in cases if case[3] == left_out]
    if case[0]:
        fail(run, 1, case[0], case[1])
    assert found(run, case[2]).kind != left_out


def test_out_of_device_memory_names_the_largest_tables_of_the_rank(run: RunPaths) -> None:
    fail(run, 1, "OutOfMemoryError", CUDA)
    # Of item rank 1 holds 500 rows x 64 x 4 B = 125 KiB; of page 100 x 64 x 2 B; of day 10 x 64 x 4 B.
    assert found(run).about == (
        "rank 1 ran out in step 7. Of its 140 KiB of table weights: item 125 KiB, page 12.5 KiB, day 2.5 KiB; "
        "optimizer state comes on top."
    )


def test_out_of_device_memory_before_the_first_step_is_of_the_tables(run: RunPaths) -> None:
    fail(run, 1, "OutOfMemoryError", CUDA, step=None)
    assert found(run).about.startswith("rank 1 ran out while it built its tables. ")


@pytest.mark.parametrize("reason", ["job 12: OUT_OF_MEMORY: a node ran out of host memory", ""])
def test_out_of_host_memory_has_no_exception_but_the_records(run: RunPaths, reason: str) -> None:
    fail(run, 1, "killed", "pid 4711 on n0 was killed by SIGKILL: out of memory?")
    assert "At step 6 the fullest worker held 3 GiB, of which each node has 2." in found(run, reason).about


def test_after_a_timeout_the_late_rank_is_named(run: RunPaths) -> None:
    """Two waited in vain, one lost its peer as they left, the fourth hung until it was killed."""
    fail(run, 0, "RuntimeError", GLOO_WAITED, primary=False)
    fail(run, 1, "RuntimeError", "Application timeout caused pair closure", primary=False)
    fail(run, 3, "RuntimeError", GLOO_CLOSED, primary=False)
    fail(run, 2, "hung", "pid 12 on n1 did not come to an exchange, and the others' wait was over")
    assert found(run).kind == "collective timeout"
    assert found(run).about.startswith("the others waited for rank 2 on n1, which did not come")


def test_a_lost_node_is_not_called_a_timeout(run: RunPaths) -> None:
    fail(run, None, "lost", "node 1 of 2 was lost: its connection broke")
    fail(run, 0, "RuntimeError", GLOO_WAITED, primary=False)
    assert found(run).kind == "node failure"


def test_bad_input_is_told_by_its_exit_code(run: RunPaths) -> None:
    fail(run, None, "NoSuchFiles", "data.files: nothing matches", exit_code=2)
    assert found(run).kind == "bad input"


def test_a_node_process_that_is_gone_without_a_word(run: RunPaths) -> None:
    assert found(run).kind == "node process lost"


def test_commands_can_be_given_as_they_stand(run: RunPaths) -> None:
    fail(run, 1, "OutOfMemoryError", CUDA)
    assert found(run).tries == (
        f"dlrmx plan {run.attempt(1).recipe}    (what each rank holds)",
        "dlrmx resume ctr-1 --nodes N    (more of them: each holds less)",
    )
    again = diagnose(run, "", "ctr-1", "/ctr-0/checkpoints/step-00000010")
    assert again
    assert not any("resume" in text for text in again.tries)


def test_what_never_began_cannot_be_resumed(tmp_path: Path) -> None:
    run = create_run(tmp_path, "ctr", None, "f" * 12)
    assert found(run, "job 12: PREEMPTED: another job took its nodes").tries == ("dlrmx logs ctr-1",)


def test_the_newest_attempt_that_failed_counts(run: RunPaths) -> None:
    fail(run, 1, "NonFinite", "the loss is not finite")
    later = claim_attempt(run)
    append_event(later, "failed", rank=0, step=9, cause="OSError", message="[Errno 28] No space left on device")
    assert (found(run).kind, found(run).attempt) == ("disk", 2)


def test_a_plan_that_cannot_be_read_costs_the_tables_names_only(run: RunPaths) -> None:
    run.attempt(1).plan.write_text("{")
    fail(run, 1, "OutOfMemoryError", CUDA)
    assert found(run).about == "rank 1 ran out in step 7."


def test_every_kind_is_in_the_docs() -> None:
    docs = (Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md").read_text()
    _, *rows = [row.split("|")[2] for row in docs.splitlines() if row.startswith("| ")]
    assert {row.partition(":")[0].strip() for row in rows} == {kind.name for kind in kinds.KINDS}
