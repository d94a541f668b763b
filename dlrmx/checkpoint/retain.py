"""Which checkpoints a run has, which one to resume from, which to delete. No torch.

What counts is verified. A checkpoint that this process saved is known to be good (`known_good`); of any other the
sizes are checked each time, and the checksums only when a deletion depends on them, at most once per process: a run
that keeps three reads two old checkpoints after a resume, and none from then on. Nothing is deleted unless a good one
stays. A deletion is a rename first, so that a kill leaves no half checkpoint under a checkpoint's name.
"""

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dlrmx.checkpoint.publish import newest_attempt, sync
from dlrmx.checkpoint.verify import outline, problems
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import ASIDE_DIR, LEFTOVER_DIR, STEP_DIR, RunPaths


@dataclass(frozen=True)
class Info:
    """One directory under checkpoints/.

    kind: a checkpoint; one set aside by `resume --from`; or what a killed save, replacement or deletion left over.
    attempt: that which wrote it (-1 if unknown). problems: what manifest and sizes show to be wrong.
    """

    step: int
    path: Path
    kind: Literal["checkpoint", "aside", "leftover"]
    attempt: int
    bytes: int
    metrics: dict[str, float]
    problems: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Its manifest is sound and all files have their size. Flipped bytes only `verify` finds."""
        return not self.problems


@dataclass(frozen=True)
class Pruned:
    """What a prune did: the checkpoints that stay, what is gone, what could not be deleted and why, what is good.

    good: checkpoints known to be good now; pass them as `known_good` next time.
    """

    kept: tuple[Path, ...]
    removed: tuple[Path, ...]
    failed: tuple[str, ...]
    good: frozenset[Path]


def list_checkpoints(run: RunPaths) -> list[Info]:
    """All that lies under the run's checkpoints/, oldest step first. Reads manifests and sizes, no tensors."""
    paths = run.checkpoints.iterdir() if run.checkpoints.is_dir() else ()
    found = [info for path in paths if (info := _info(run, path))]
    return sorted(found, key=lambda info: (info.step, info.path.name))


def newest_good(run: RunPaths) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is good to its last byte, and why each newer one is not.

    (None, []): the run never completed a checkpoint, and may start from step 0; leftovers of killed saves do not
    count. (None, reasons): it did, and none is good: never start over then.
    """
    reasons: list[str] = []
    for info in reversed(_checkpoints(run)):
        found = problems(info.path)
        if not found:
            return info.path, reasons
        reasons += [f"{info.path.name}: {problem}" for problem in found]
    return None, reasons or _gone(run)


def _gone(run: RunPaths) -> list[str]:
    """Of a run without any checkpoint: that it once saved one, by its own events."""
    saved = [event["step"] for attempt in run.attempts() for event in read_events(attempt, "saved")]
    return [f"{run.checkpoints}: the run saved step {saved[-1]}, and nothing is there"] if saved else []


def prune(
    run: RunPaths,
    *,
    keep: int,
    best_metric: str | None = None,
    attempt: int | None = None,
    known_good: Collection[Path] = (),
) -> Pruned:
    """Delete all but the `keep` newest good checkpoints and the best one, and what older attempts left over.

    best_metric: e.g. validation.ne (least) or validation.auc (greatest), as saved in the state's metrics. attempt: the
    caller's; nothing is deleted if it is not the newest (None: the caller holds the run's lock). Damaged ones do not
    count, and go once a good newer one stays; those set aside, and directories that are no checkpoint of ours, stay.
    """
    assert keep >= 1, keep
    newest = newest_attempt(run)
    if attempt is not None and attempt < newest:
        return Pruned((), (), (), frozenset(known_good))
    checkpoints = _checkpoints(run)[::-1]
    good = _Good(known_good)
    kept = _to_keep(checkpoints, keep, best_metric, good)
    doomed = [info for info in checkpoints if kept and info not in kept and info.step < kept[0].step]
    failed = [f"{info.path.name}: left alone: {info.problems[0]}" for info in doomed if info.attempt < 0]
    removed = []
    for info in [info for info in doomed if info.attempt >= 0] + _old_leftovers(run, newest):
        try:
            _delete(info.path, run.removed_checkpoint(info.step, newest))
            removed.append(info.path)
        except OSError as error:
            failed.append(f"{info.path.name}: {error.strerror}")
    paths = tuple(info.path for info in kept)
    return Pruned(paths, tuple(removed), tuple(failed), good.known - frozenset(removed))


def set_aside(run: RunPaths, after_step: int, attempt: int) -> list[Path]:
    """Rename the checkpoints later than `after_step`, so that `attempt`, which begins there, does not count them.

    Returns their new paths. Rename one back to count it again. Raises OSError.
    """
    moved = []
    for info in _checkpoints(run):
        if info.step > after_step:
            moved.append(info.path.rename(run.aside_checkpoint(info.step, attempt)))
    if moved:
        sync(run.checkpoints)
    return moved


class _Good:
    """Which checkpoints are good: known from before, or verified now, once."""

    def __init__(self, known: Collection[Path]) -> None:
        self.known = frozenset(known)

    def __call__(self, info: Info) -> bool:
        if not info.complete:
            self.known -= {info.path}
        elif info.path not in self.known and not problems(info.path):
            self.known |= {info.path}
        return info.path in self.known


def _to_keep(newest_first: list[Info], keep: int, best_metric: str | None, good: _Good) -> list[Info]:
    """The newest good ones and the best, newest first. Reads no more checkpoints than the choice depends on."""
    if len(newest_first) <= keep:
        return newest_first
    kept: list[Info] = []
    for info in newest_first:
        if len(kept) < keep and good(info):
            kept.append(info)
    best = _best(newest_first, best_metric, good) if best_metric else None
    return kept if best is None or best in kept else [*kept, best]


def _best(newest_first: list[Info], metric: str, good: _Good) -> Info | None:
    """The good one with the best value of `metric`; the newest of equals."""
    sign = -1 if metric.endswith(".auc") else 1
    rated = [info for info in newest_first if metric in info.metrics]
    return next((info for info in sorted(rated, key=lambda info: sign * info.metrics[metric]) if good(info)), None)


def _checkpoints(run: RunPaths) -> list[Info]:
    """Oldest first. One that was replaced counts as long as what replaces it was not published (a kill in between)."""
    return [info for info in list_checkpoints(run) if info.kind == "checkpoint"]


def _old_leftovers(run: RunPaths, newest: int) -> list[Info]:
    """Those of attempts before the newest, which may have its own in the making; its dead it may bury."""
    leftovers = [info for info in list_checkpoints(run) if info.kind == "leftover"]
    return [
        info for info in leftovers if info.attempt < newest or info.path == run.removed_checkpoint(info.step, newest)
    ]


def _info(run: RunPaths, path: Path) -> Info | None:
    """What a name under checkpoints/ stands for; None if nothing of ours."""
    step_dir, aside, leftover = (pattern.match(path.name) for pattern in (STEP_DIR, ASIDE_DIR, LEFTOVER_DIR))
    match = step_dir or aside or leftover
    if match is None:
        return None
    step = int(match[1])
    stands_in = leftover and leftover[3] == "replaced" and not run.checkpoint(step).exists()
    if leftover and not stands_in:
        what = {"replaced": "was replaced", "removed": "was being deleted"}.get(leftover[3], "was never completed")
        return Info(step, path, "leftover", int(leftover[2]), _disk_bytes(path), {}, (f"left over: {what}",))
    manifest, found = outline(path)
    return Info(
        step=step,
        path=path,
        kind="aside" if aside else "checkpoint",
        attempt=manifest.attempt if manifest else -1,
        bytes=_disk_bytes(path),
        metrics=manifest.metrics if manifest else {},
        problems=tuple(found),
    )


def _disk_bytes(directory: Path) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(directory))
    except OSError:
        return 0  # a live run has renamed or deleted it meanwhile


def _delete(path: Path, removed: Path) -> None:
    if path != removed:
        shutil.rmtree(removed, ignore_errors=True)
        path.rename(removed)
    shutil.rmtree(removed)
