"""Saving on several ranks: all agree, whatever one of them meets; a kill at any moment leaves the last one good."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessException

from checkpoint_cases import make_run, save_all, save_small, whole
from dlrmx.checkpoint import write
from dlrmx.checkpoint.manifest import read_manifest
from dlrmx.checkpoint.publish import sync
from dlrmx.checkpoint.read import open_checkpoint
from dlrmx.checkpoint.retain import list_checkpoints, newest_good, prune
from dlrmx.checkpoint.verify import problems
from dlrmx.checkpoint.write import Piece, SaveError
from dlrmx.runs.layout import RunPaths
from ranks import run_ranks

ROWS = 30_000  # 10,000 rows of 64 bytes on each of three ranks
DISK_KIB = 1024  # of the small disk; a checkpoint needs 1,875


def third(rank: int) -> list[Piece]:
    """A rank's third of a table, and on rank 0 the dense part; 640,000 bytes and a header."""
    table = torch.arange(16 * ROWS, dtype=torch.float32).reshape(ROWS, 16)
    span = (ROWS * rank // 3, ROWS * (rank + 1) // 3)
    pieces = [Piece("table/t/weight", (ROWS, 16), span, None, table[slice(*span)])]
    return pieces + ([whole("dense/top.0.bias", torch.ones(5))] if rank == 0 else [])


# ------------------------------------------------------------------------------------ cases, run on three ranks


def outcome(act: Callable[[], Any]) -> dict[int, str]:
    """What SaveError.failures says; {} if it was saved."""
    try:
        act()
    except SaveError as error:
        return error.failures
    return {}


def saves(run: RunPaths) -> dict[str, Any]:
    """A plain save, and the same step saved again by the next attempt."""
    phases: list[str] = []
    saved = save_all(run, dist.group.WORLD, 100, third(dist.get_rank()), on_phase=phases.append)
    dist.barrier()
    run.attempt(2).dir.mkdir(exist_ok=True)
    again = save_all(run, dist.group.WORLD, 100, third(dist.get_rank()), attempt=2)
    return {"phases": phases, "path": saved.path, "bytes": saved.bytes, "again": again.path}


def limited_file(run: RunPaths) -> tuple[dict[int, str], dict[int, str]]:
    """On rank 1 a file may grow to 100,000 bytes; then the limit is lifted."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    refused = outcome(lambda: save_all(run, dist.group.WORLD, 100, third(dist.get_rank())))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    dist.barrier()
    left = os.listdir(run.checkpoints)
    dist.barrier()
    assert left == []
    return refused, outcome(lambda: save_all(run, dist.group.WORLD, 100, third(dist.get_rank())))


def failing_fsync(run: RunPaths) -> dict[int, str]:
    fsync = os.fsync

    def broken(fd: object) -> None:
        raise OSError(5, "Input/output error")

    if dist.get_rank() == 2:
        os.fsync = broken
    try:
        return outcome(lambda: save_all(run, dist.group.WORLD, 100, third(dist.get_rank())))
    finally:
        os.fsync = fsync


def save_on(run: RunPaths) -> dict[int, str]:
    return outcome(lambda: save_all(run, dist.group.WORLD, 100, third(dist.get_rank())))


def three_ranks(folder: Path, small_disk: Path | None) -> dict[str, Any]:
    """All cases on one start of three processes; what each rank saw of each."""
    rank = dist.get_rank()
    runs = {name: RunPaths(folder / name / "run-1") for name in ("saves", "limit", "fsync", "file", "old", "elsewhere")}
    if rank == 2:
        runs["elsewhere"] = make_run(folder / "not-shared")
    seen = {
        "saves": saves(runs["saves"]),
        "limit": limited_file(runs["limit"]),
        "fsync": failing_fsync(runs["fsync"]),
        "file": save_on(runs["file"]),
        "old": save_on(runs["old"]),
        "elsewhere": save_on(runs["elsewhere"]),
        "gathered": write._gather(dist.group.WORLD, b"x" * rank),
    }
    return seen | ({"disk": save_on(RunPaths(small_disk))} if small_disk else {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    for name in ("saves", "limit", "fsync", "elsewhere"):
        make_run(folder / name)
    make_run(folder / "file").checkpoints.write_text("in the way")
    make_run(folder / "old", attempts=2)
    return folder


@pytest.fixture(scope="module")
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A run on a disk too small for one checkpoint, with an older one on it; None where we may not mount."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "dlrmx-test", str(disk)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        run = make_run(disk)
        save_small(run, 50)
        yield run.dir
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture(scope="module")
def seen(folder: Path, small_disk: Path | None) -> list[dict[str, Any]]:
    return run_ranks(3, three_ranks, folder, small_disk)


# ------------------------------------------------------------------------------------ what they saw


def test_all_ranks_save_one_checkpoint(seen: list[dict[str, Any]], folder: Path) -> None:
    run = RunPaths(folder / "saves" / "run-1")
    for ranks in seen:
        told = ranks["saves"]
        assert told["phases"] == ["writing", "written", "committed"]
        assert told["path"] == told["again"] == run.checkpoint(100)
        assert told["bytes"] == sum(path.stat().st_size for path in told["path"].glob("*.safetensors"))
    assert os.listdir(run.checkpoints) == ["step-00000100"]
    assert problems(run.checkpoint(100)) == []
    with open_checkpoint(run.checkpoint(100)) as stored:
        table = stored.read("table/t/weight")
        assert torch.equal(table.flatten(), torch.arange(16 * ROWS, dtype=torch.float32))
        assert stored.read("dense/top.0.bias").tolist() == [1.0] * 5


def test_a_later_attempt_replaces_the_same_step(seen: list[dict[str, Any]], folder: Path) -> None:
    assert read_manifest(folder / "saves" / "run-1" / "checkpoints" / "step-00000100").attempt == 2


def test_a_full_disk_on_one_rank_ends_the_save_on_all(seen: list[dict[str, Any]], folder: Path) -> None:
    run = RunPaths(folder / "limit" / "run-1")
    file = run.partial_checkpoint(100, 1) / "rank-0001.safetensors"
    for ranks in seen:
        refused, retried = ranks["limit"]
        assert refused == {1: f"{file}: File too large (EFBIG)"}
        assert retried == {}
    assert newest_good(run) == (run.checkpoint(100), [])


def test_a_full_disk(seen: list[dict[str, Any]], small_disk: Path | None) -> None:
    if small_disk is None:
        pytest.skip("only root may mount a small disk")
    run = RunPaths(small_disk)
    for ranks in seen:
        assert ranks["disk"]
        assert all("No space left on device (ENOSPC)" in failure for failure in ranks["disk"].values())
        assert ranks["disk"] == seen[0]["disk"]
    assert os.listdir(run.checkpoints) == ["step-00000050"]
    assert newest_good(run) == (run.checkpoint(50), [])


def test_what_fails_after_the_last_byte_fails_the_save(seen: list[dict[str, Any]], folder: Path) -> None:
    run = RunPaths(folder / "fsync" / "run-1")
    file = run.partial_checkpoint(100, 1) / "rank-0002.safetensors"
    assert [ranks["fsync"] for ranks in seen] == [{2: f"{file}: Input/output error (EIO)"}] * 3
    assert os.listdir(run.checkpoints) == []


def test_a_folder_that_cannot_be_made(seen: list[dict[str, Any]], folder: Path) -> None:
    place = folder / "file" / "run-1" / "checkpoints"
    assert [ranks["file"] for ranks in seen] == [{0: f"{place}: File exists (EEXIST)"}] * 3


def test_a_worker_of_an_older_attempt_saves_nothing(seen: list[dict[str, Any]], folder: Path) -> None:
    told = {0: "attempt 2 has begun; this worker belongs to attempt 1"}
    assert [ranks["old"] for ranks in seen] == [told] * 3
    assert list_checkpoints(RunPaths(folder / "old" / "run-1")) == []


def test_ranks_that_write_elsewhere_are_named(seen: list[dict[str, Any]], folder: Path) -> None:
    ours, other = (RunPaths(folder / name / "run-1").partial_checkpoint(100, 1) for name in ("elsewhere", "not-shared"))
    assert [ranks["elsewhere"] for ranks in seen] == [{2: f"writes to {other}, rank 0 to {ours}"}] * 3
    assert os.listdir(ours.parent) == []


def test_answers_of_different_lengths_are_gathered(seen: list[dict[str, Any]]) -> None:
    assert [ranks["gathered"] for ranks in seen] == [[b"", b"x", b"xx"]] * 3


# ------------------------------------------------------------------------------------ kills

# Forks one child per case, each killed by itself (as by kill -9) at its moment of a save of step STEP by attempt 2.
KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from checkpoint_cases import save_small
from dlrmx.checkpoint import write
from dlrmx.runs.layout import RunPaths

def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)

def kill_at(moment):
    if moment == "first byte":
        write._write_data = die
    elif moment == "last byte":
        os.fsync = die
    elif moment == "between the renames":
        rename = Path.rename
        Path.rename = lambda self, target: die() if ".attempt-" in self.name else rename(self, target)
    elif moment == "before the old one goes":
        write.shutil.rmtree = lambda path, ignore_errors: die() if path.exists() else None
    else:
        save = write.save
        import checkpoint_cases
        def on_phase(phase):
            if phase == moment:
                die()
        checkpoint_cases.save = lambda run, **options: save(run, **{**options, "on_phase": on_phase})

for case in sys.argv[1:]:
    folder, step, moment = case.split("|")
    child = os.fork()
    if child == 0:
        kill_at(moment)
        save_small(RunPaths(Path(folder)), int(step), attempt=2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(moment, -os.waitstatus_to_exitcode(status))
"""

MOMENTS = {  # the moment -> is the new checkpoint there then?
    "writing": False,
    "first byte": False,
    "last byte": False,
    "written": False,
    "between the renames": False,
    "before the old one goes": True,
    "committed": True,
}
MOMENTS_OF_A_NEW_STEP = [moment for moment in MOMENTS if moment != "before the old one goes"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], RunPaths]:
    """(moment, step) -> a run with a good step 100 by attempt 1, after attempt 2 was killed while it saved `step`."""
    folder = tmp_path_factory.mktemp("killed")
    cases = [(moment, 100) for moment in MOMENTS] + [(moment, 200) for moment in MOMENTS_OF_A_NEW_STEP]
    runs = {case: make_run(folder / f"{index}") for index, case in enumerate(cases)}
    for run in runs.values():
        save_small(run, 100)
        run.attempt(2).dir.mkdir()
    arguments = [f"{run.dir}|{step}|{moment}" for (moment, step), run in runs.items()]
    environment = os.environ | {"PYTHONPATH": str(Path(write.__file__).parents[2] / "tests"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{moment} {int(signal.SIGKILL)}" for moment, _ in cases], done.stderr
    return runs


@pytest.mark.parametrize("moment", MOMENTS_OF_A_NEW_STEP)
def test_killed_while_it_saves_a_new_step(killed: dict[tuple[str, int], RunPaths], moment: str) -> None:
    run = killed[moment, 200]
    assert newest_good(run) == (run.checkpoint(200 if MOMENTS[moment] else 100), [])
    assert resumed(run, 200) == 200


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_it_replaces_its_only_checkpoint(killed: dict[tuple[str, int], RunPaths], moment: str) -> None:
    run = killed[moment, 100]
    path, reasons = newest_good(run)
    assert path is not None
    assert reasons == []
    assert read_manifest(path).attempt == (2 if MOMENTS[moment] else 1)
    assert read_manifest(path).step == 100
    assert resumed(run, 100) == 100


def resumed(run: RunPaths, step: int) -> int:
    """A third attempt saves the same step and tidies up: that checkpoint is all there is. Returns the newest's step."""
    run.attempt(3).dir.mkdir()
    saved = save_small(run, step, attempt=3)
    prune(run, keep=1, attempt=3, known_good=[saved])
    assert [path.name for path in run.checkpoints.iterdir()] == [saved.name]
    newest, _ = newest_good(run)
    assert newest is not None
    return read_manifest(newest).step


def die_at_written(folder: Path) -> None:
    def on_phase(phase: str) -> None:
        if phase == "written" and dist.get_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    save_all(RunPaths(folder / "run-1"), dist.group.WORLD, 200, third(dist.get_rank()), on_phase=on_phase)


def test_rank_0_killed_before_the_rename_ends_the_others(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    save_small(run, 100)
    with pytest.raises(ProcessException):
        run_ranks(3, die_at_written, tmp_path)
    assert newest_good(run) == (run.checkpoint(100), [])
    assert [info.path.name for info in list_checkpoints(run) if info.kind == "leftover"] == [
        ".step-00000200.attempt-0001"
    ]


# ------------------------------------------------------------------------------------ one process


def test_a_failed_save_of_one_process_says_where_and_why(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.checkpoints.write_text("in the way")
    with pytest.raises(
        SaveError, match=r"step 7 was not saved: rank 0: .*checkpoints: File exists \(EEXIST\)\n.*untouched"
    ):
        save_all(run, None, 7, [])


def test_a_step_that_failed_once_is_saved_the_next_time(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.partial_checkpoint(100, 1).mkdir(parents=True)
    (run.partial_checkpoint(100, 1) / "rank-0009.safetensors").write_text("half")
    save_small(run, 100)
    assert sorted(os.listdir(run.checkpoint(100))) == ["manifest.json", "rank-0000.safetensors"]


def test_pieces_must_make_up_the_tensor(tmp_path: Path) -> None:
    """Shards that were dropped or given twice are our own fault: found at the save, not at the resume."""
    half = Piece("t", (4, 2), (0, 2), None, torch.zeros(2, 2))
    with pytest.raises(AssertionError, match="t: 4 of 4 x 2"):
        save_all(make_run(tmp_path), None, 1, [half])
    with pytest.raises(AssertionError, match="t: data"):
        Piece("t", (4, 2), (0, 3), None, torch.zeros(2, 2))
    with pytest.raises(AssertionError, match="two pieces t"):
        save_all(make_run(tmp_path / "b"), None, 1, [whole("t", torch.ones(2)), whole("t", torch.ones(2))])


def test_a_large_tensor_is_written_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.arange(4000.0).reshape(500, 8)
    monkeypatch.setattr(write, "BLOCK_BYTES", 100)  # three rows
    path = save_all(make_run(tmp_path), None, 1, [whole("t", table), whole("u", table[:, 3:5])]).path
    assert problems(path) == []
    with open_checkpoint(path) as stored:
        assert torch.equal(stored.read("t"), table)
        assert torch.equal(stored.read("u"), table[:, 3:5])


def test_tensors_are_aligned_in_the_file(tmp_path: Path) -> None:
    """The widest come first, whatever order they are given in."""
    dtypes = {"odd": torch.uint8, "half": torch.float16, "long": torch.int64}
    pieces = [whole(name, torch.ones(3, dtype=dtype)) for name, dtype in dtypes.items()]
    path = save_all(make_run(tmp_path), None, 1, pieces).path
    content = (path / "rank-0000.safetensors").read_bytes()
    info = read_manifest(path).files["rank-0000.safetensors"]
    assert info.header_bytes % 8 == 0
    assert content[info.header_bytes :] == 3 * b"\1\0\0\0\0\0\0\0" + 3 * b"\x00\x3c" + 3 * b"\1"


def test_no_pickle(tmp_path: Path) -> None:
    """Nothing in the files is a pickle or a zip of them, as torch.save makes."""
    path = save_small(make_run(tmp_path), 100)
    for file in path.iterdir():
        assert file.read_bytes()[:2] not in (b"PK", b"\x80\x02", b"\x80\x04", b"\x80\x05")


def test_sync_needs_a_directory(tmp_path: Path) -> None:
    sync(tmp_path)
    with pytest.raises(NotADirectoryError):
        (tmp_path / "file").write_text("")
        sync(tmp_path / "file")
