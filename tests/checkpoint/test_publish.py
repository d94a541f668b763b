"""The commit: sizes, manifest, rename; never a moment in which a kill leaves nothing to resume from."""

import os
from pathlib import Path

import pytest

from checkpoint_cases import make_run, save_small
from dlrmx.checkpoint.manifest import read_manifest
from dlrmx.checkpoint.publish import Refused, commit, newest_attempt
from dlrmx.checkpoint.retain import newest_good
from dlrmx.checkpoint.verify import problems
from dlrmx.runs.layout import RunPaths


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    return make_run(tmp_path)


def written(run: RunPaths, step: int, attempt: int) -> Path:
    """A directory as the ranks leave it to rank 0: all files, no manifest yet."""
    partial = run.partial_checkpoint(step, attempt)
    save_small(run, step, attempt=attempt).rename(partial)
    return partial


def silent(phase: str) -> None:
    pass


def test_commit(run: RunPaths) -> None:
    partial = written(run, 100, 1)
    manifest = read_manifest(partial)
    (partial / "manifest.json").unlink()
    phases: list[tuple[str, bool, bool]] = []
    commit(
        run,
        manifest,
        lambda phase: phases.append((phase, (partial / "manifest.json").exists(), run.checkpoint(100).exists())),
    )
    assert phases == [("written", True, False)]
    assert problems(run.checkpoint(100)) == []
    assert not partial.exists()


def test_a_file_that_is_short_or_not_to_be_seen_is_refused(run: RunPaths) -> None:
    partial = written(run, 100, 1)
    manifest = read_manifest(partial)
    file = partial / "rank-0000.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Refused, match="that its rank has written"):
        commit(run, manifest, silent)
    file.unlink()
    with pytest.raises(
        Refused, match="does not see .*rank-0000.safetensors: is the run on a disk that all nodes share"
    ):
        commit(run, manifest, silent)
    assert newest_good(run) == (None, [])


def test_an_older_attempt_does_not_publish(run: RunPaths) -> None:
    manifest = read_manifest(written(run, 100, 1))
    assert newest_attempt(run) == 1
    run.attempt(2).dir.mkdir()
    with pytest.raises(Refused, match="attempt 2 has begun; this worker belongs to attempt 1"):
        commit(run, manifest, silent)
    assert not run.checkpoint(100).exists()


def test_an_earlier_checkpoint_of_the_step_is_replaced(run: RunPaths) -> None:
    manifest = read_manifest(written(run, 100, 2))
    save_small(run, 100, attempt=1)
    commit(run, manifest, silent)
    assert read_manifest(run.checkpoint(100)).attempt == 2
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-00000100"]


def test_a_replacement_that_fails_puts_the_earlier_one_back(run: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = written(run, 100, 2)
    manifest = read_manifest(partial)
    save_small(run, 100, attempt=1)
    rename = Path.rename

    def refusing(self: Path, target: Path) -> Path:
        if self == partial:
            raise OSError(28, "No space left on device", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    with pytest.raises(OSError, match="No space left"):
        commit(run, manifest, silent)
    assert read_manifest(run.checkpoint(100)).attempt == 1
    assert newest_good(run) == (run.checkpoint(100), [])


def test_everything_is_on_the_disk_before_the_rename_and_the_rename_before_the_end(
    run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = written(run, 100, 1)
    manifest = read_manifest(partial)
    acts: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noted_fsync(handle: int) -> None:
        acts.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def noted_rename(path: Path, target: Path) -> Path:
        acts.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    commit(run, manifest, silent)
    assert acts == [str(partial / "manifest.json"), str(partial), "rename", str(run.checkpoints)]
