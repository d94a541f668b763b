"""A copy of a run that this machine cannot see, made of what its first pod tells through its log (telling.py)."""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from torchx.specs import AppState

from dlrmx.errors import ClusterError
from dlrmx.launch.app import ROLE
from dlrmx.launch.kubernetes import KubernetesScheduler
from dlrmx.runs.claim import is_copy, note_copy
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import read_run, write_aside

# A pod's word is not taken for where files lie on this machine.
NAMES = re.compile(
    r"run\.json|attempts/\d{4,8}/(recipe\.yaml|job\.json|(events|records)\.jsonl|logs/node-\d{1,6}\.log)"
)
AGAIN_S = 1.0
BRIEF_S = 5.0
ENDED = (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)


def refresh(run: RunPaths) -> None:
    """Bring a copy up to date; a run that is no copy is left alone. Raises ClusterError."""
    app = _app_of(run)
    if app is not None:
        scheduler = KubernetesScheduler("mirror")
        _note_life(run, scheduler.describe(app))
        _hear(run, scheduler, app, follow=False)


@contextmanager
def mirrored(run: RunPaths, say: Callable[[str], object]) -> Iterator[None]:
    """Keep a copy up to date meanwhile, and say why it is not; nothing where the run is no copy."""
    over = threading.Event()
    thread = threading.Thread(target=_keep_up, args=(run, over, say), daemon=True)
    if is_copy(run):
        thread.start()
    try:
        yield
    finally:
        over.set()


def hear(run: RunPaths, line: str) -> bool:
    """Write one piece into the copy; False where the line is something else that the pod printed."""
    if not line.startswith('{"dlrmx": "'):
        return False
    try:
        piece = json.loads(line)
        name, at, data = piece["dlrmx"], piece["at"], piece["text"].encode("utf-8", "surrogateescape")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    if not isinstance(name, str) or not NAMES.fullmatch(name) or not (at is None or isinstance(at, int) and at >= 0):
        return False
    path = run.dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if at is None:
        write_aside(path, data.decode(errors="replace"))
        return True
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, data, at)
    finally:
        os.close(descriptor)
    return True


def _keep_up(run: RunPaths, over: threading.Event, say: Callable[[str], object]) -> None:
    scheduler = KubernetesScheduler("mirror")
    told = ""
    while not over.is_set():
        app = described = None
        with suppress(ClusterError):  # whoever waits for the job's end tells of it
            app = _app_of(run)
            described = scheduler.describe(app) if app is not None else None
        heard = time.monotonic()
        try:
            _note_life(run, described)
            if app is not None and described is not None:
                _hear(run, scheduler, app, follow=described.state not in ENDED, over=over)
        except (ClusterError, OSError) as error:
            words = f"{run.name} is not heard of: {error}"
            # What broke off after a while is heard again: connections do so.
            if words != told and time.monotonic() < heard + BRIEF_S and not over.is_set():
                told = words
                say(words)
        over.wait(AGAIN_S)


def _hear(
    run: RunPaths, scheduler: KubernetesScheduler, app: str, *, follow: bool, over: threading.Event | None = None
) -> None:
    """Read the log of the first pod, as far as it goes; what is no piece goes to launch.log."""
    aside = run.launch_log.with_name(f".{run.launch_log.name}.{os.getpid()}.{threading.get_ident()}")
    others: BinaryIO | None = None
    try:
        for line in scheduler.log_iter(app, ROLE, 0, should_tail=follow):
            if over is not None and over.is_set():
                break
            if hear(run, line):
                continue
            if others is None:
                others = aside.open("wb")
                os.replace(aside, run.launch_log)  # in place of what was heard before: a log is read from its beginning
            others.write(line.encode(errors="surrogateescape"))
            others.flush()
    finally:
        if others is not None:
            others.close()


def _note_life(run: RunPaths, described: Any) -> None:
    note_copy(run, live=described is not None and described.state == AppState.RUNNING)


def _app_of(run: RunPaths) -> str | None:
    """The job of a copy; None before its submission, and where the run is no copy."""
    job = read_run(run).get("job") if is_copy(run) else None
    return job["app"] if isinstance(job, dict) else None
