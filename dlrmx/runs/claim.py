"""Who owns what: a run's name, an attempt's number, and the one node process that may drive a run.

Names and numbers are claimed by mkdir, which is atomic, on NFS too. The lock is held by flock, so that it falls with
its holder however that one dies.
"""

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlrmx import __version__
from dlrmx.errors import InputError
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.run_file import read_run, write_aside, write_run

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Readers look whether a run is live by taking its lock for a moment; a node process waits that out.
LOCK_PATIENCE_S = 2.0


def next_name(root: Path, recipe_name: str, stamp: str = "") -> str:
    """The name that `create_run` would take now: <recipe_name>-<n>, one above the highest in `root`.

    With a stamp, <recipe_name>-<stamp>; where that is taken, with -2 or a higher number behind it.
    """
    stem = f"{recipe_name}-{stamp}" if stamp else recipe_name
    if stamp and not (root / stem).exists():
        return stem
    pattern = re.compile(re.escape(stem) + r"-(\d+)")
    numbers = [int(match[1]) for path in root.glob(f"{stem}-*") if (match := pattern.fullmatch(path.name))]
    return f"{stem}-{max(numbers, default=1 if stamp else 0) + 1}"


def check_name(root: Path, name: str) -> None:
    """Raises InputError where a run in `root` cannot have this name: it is unfit or taken."""
    _check_fit(name)
    if (root / name).exists():
        raise _taken(root, name)


def _check_fit(name: str) -> None:
    """It becomes a folder, and the name of a job."""
    if not RUN_NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a run", hint="letters, digits, '.', '_' and '-', at most 63 in all")


def create_run(
    root: Path, recipe_name: str, name: str | None, fingerprint: str, *, adopt: bool = False, stamp: str = ""
) -> RunPaths:
    """Claim <root>/<name>, for None the next free of the generated ones (`next_name`), and write its run.json.

    adopt: take a folder of that name that is there already and is no run yet: a job's script makes it, for its log.
    Raises InputError where `name` is taken or unfit, or `root` cannot be written.
    """
    if name is not None:
        _check_fit(name)
    try:
        root.mkdir(parents=True, exist_ok=True)
        there = root.absolute() / name if adopt and name is not None else None
        run = RunPaths(there) if there else _claim_name(root, recipe_name, name, stamp)
        run.dir.mkdir(exist_ok=True)
        fields = {"version": 1, "name": run.name, "recipe": recipe_name, "fingerprint": fingerprint}
        write_run(run, {**fields, "dlrmx": __version__, "created": time.time(), "attempt": 0, "state": "created"})
    except OSError as error:
        raise InputError(f"no run can be created in {root}: {error}", hint="root in the cluster profile") from error
    return run


def claim_attempt(run: RunPaths) -> AttemptPaths:
    """Claim the run's next attempt; its folder is never another's."""
    while True:
        numbers = [attempt.number for attempt in run.attempts()]
        attempt = run.attempt(max(numbers, default=0) + 1)
        try:
            attempt.logs.parent.parent.mkdir(exist_ok=True)
            attempt.dir.mkdir()
        except FileExistsError:
            continue
        attempt.logs.mkdir()
        append_event(attempt, "claimed")
        return attempt


@contextmanager
def hold(run: RunPaths, *, patience_s: float = LOCK_PATIENCE_S) -> Iterator[None]:
    """Be the only one that drives the run. Raises InputError, naming the other, where one does so for so long."""
    descriptor = os.open(run.lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(descriptor, run, patience_s)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)
        yield
    finally:
        os.close(descriptor)


def is_live(run: RunPaths) -> bool:
    """Whether a node process drives the run now; of a copy, whether one did when it was last brought up to date."""
    if is_copy(run):
        return json.loads(run.copy.read_bytes())["live"] is True
    try:
        descriptor = os.open(run.lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def is_copy(run: RunPaths) -> bool:
    """Whether the run itself is elsewhere, out of this machine's sight."""
    return run.copy.is_file()


def note_copy(run: RunPaths, *, live: bool) -> None:
    """Make the folder a copy of a run elsewhere, or note whether that is live."""
    write_aside(run.copy, json.dumps({"live": live}) + "\n")


def request_stop(attempt: AttemptPaths, by: str) -> bool:
    """Ask the attempt to save and stop; False where somebody already did."""
    try:
        with attempt.stop_request.open("x") as file:
            file.write(by + "\n")
    except FileExistsError:
        return False
    append_event(attempt, "stop_requested", by=by)
    return True


def stop_run(run: RunPaths, by: str) -> AttemptPaths:
    """Ask the run's live attempt to save and stop. Raises InputError where the run is not running."""
    patience = time.monotonic() + LOCK_PATIENCE_S
    while is_live(run) and time.monotonic() < patience:
        fields = read_run(run)
        if fields["state"] == "running":
            attempt = run.attempt(fields["attempt"])
            request_stop(attempt, by)
            # A retry may have opened the next attempt meanwhile: it must hear of it too.
            if read_run(run)["attempt"] == attempt.number:
                return attempt
        time.sleep(0.05)
    raise InputError(f"run {run.name} is not running", hint=f"`dlrmx status {run.name}` says how it ended")


def _claim_name(root: Path, recipe_name: str, name: str | None, stamp: str) -> RunPaths:
    while True:
        run = RunPaths(root.absolute() / (name or next_name(root, recipe_name, stamp)))
        try:
            run.dir.mkdir()
            return run
        except FileExistsError:
            if name is not None:
                raise _taken(root, name) from None


def _taken(root: Path, name: str) -> InputError:
    hint = f"another --name, or `dlrmx resume {name}` to go on with it"
    return InputError(f"there is a run {name} in {root} already", hint=hint)


def _acquire(descriptor: int, run: RunPaths, patience_s: float) -> None:
    patience = time.monotonic() + patience_s
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() > patience:
            hint = f"`dlrmx watch {run.name}` follows it, `dlrmx cancel {run.name}` saves and stops it"
            raise InputError(f"run {run.name} is already running: {_holder(descriptor)}", hint=hint)
        time.sleep(0.05)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"pid {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "its lock is held"
