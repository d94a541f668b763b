"""Publishes a checkpoint that all ranks have written: sizes, manifest, rename. No torch."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from dlrmx.checkpoint.manifest import CheckpointManifest, write_manifest
from dlrmx.runs.layout import RunPaths


class Refused(Exception):
    """Why a save must not go on, though the disk would have it."""


def refuse_if_superseded(run: RunPaths, attempt: int) -> None:
    """A worker that outlived its attempt must not publish over what the next one saves."""
    newest = newest_attempt(run)
    if newest > attempt:
        raise Refused(f"attempt {newest} has begun; this worker belongs to attempt {attempt}")


def newest_attempt(run: RunPaths) -> int:
    """The number of the newest attempt, the only one that may publish or delete; 0 before the first."""
    return max((attempt.number for attempt in run.attempts()), default=0)


def commit(run: RunPaths, manifest: CheckpointManifest, on_phase: Callable[[str], None]) -> int:
    """Check the sizes, write the manifest, rename. Returns the bytes of all files."""
    partial = run.partial_checkpoint(manifest.step, manifest.attempt)
    for name, info in manifest.files.items():
        _check_size(partial / name, info.bytes)
    write_manifest(partial, manifest)
    sync(partial)
    on_phase("written")
    refuse_if_superseded(run, manifest.attempt)
    replaced = run.replaced_checkpoint(manifest.step, manifest.attempt)
    _swap(partial, run.checkpoint(manifest.step), replaced)
    sync(run.checkpoints)
    shutil.rmtree(replaced, ignore_errors=True)
    return manifest.bytes


def _check_size(path: Path, expected: int) -> None:
    try:
        with path.open("rb") as file:  # opening asks an NFS server for the size; a bare stat may answer from a cache
            found = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise Refused(f"does not see {path}: is the run on a disk that all nodes share?") from None
    if found != expected:
        raise Refused(f"{path}: {found} bytes, of {expected} that its rank has written")


def _swap(partial: Path, final: Path, replaced: Path) -> None:
    """Publish `partial` as `final`. Killed between the two renames, `replaced` is what a resume still finds."""
    again = final.exists()
    if again:
        shutil.rmtree(replaced, ignore_errors=True)
        final.rename(replaced)
    try:
        partial.rename(final)
    except OSError:
        if again:
            replaced.rename(final)
        raise


def sync(directory: Path) -> None:
    """See a directory's names onto the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
