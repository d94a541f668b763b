"""run.json: what a run is and how it ended. Written whole, aside, then renamed; by the lock's holder only."""

import errno
import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlrmx.errors import UnknownRun
from dlrmx.runs.layout import RunPaths

RunFile = dict[str, Any]
FULL = (errno.ENOSPC, errno.EDQUOT)
BLOCK_BYTES = 4096
STATES = ("created", "running", "stopped", "done", "failed", "lost")

_SOUND: dict[str, Callable[[Any], bool]] = {
    "recipe": lambda value: isinstance(value, str),
    "fingerprint": lambda value: isinstance(value, str),
    "created": lambda value: isinstance(value, int | float) and math.isfinite(value),
    "state": lambda value: value in STATES,
    "exit_code": lambda value: value is None or isinstance(value, int),
    "reason": lambda value: value is None or isinstance(value, str),
}


def read_run(run: RunPaths) -> RunFile:
    """name, recipe, fingerprint, dlrmx, created, attempt, state; evaluates (a checkpoint) where it is an
    evaluation; after the end exit_code, reason, ended.

    Raises UnknownRun where there is none or it cannot be read.
    """
    try:
        fields = json.loads(run.run.read_bytes())
    except (OSError, ValueError) as error:
        raise UnknownRun(f"no run at {run.dir}: {error}") from error
    if not isinstance(fields, dict) or fields.get("version") != 1:
        raise UnknownRun(f"no run at {run.dir}: its run.json is not one that this dlrmx reads")
    wrong = [name for name, sound in _SOUND.items() if not sound(fields.get(name))]
    if wrong:
        raise UnknownRun(f"no run at {run.dir}: its run.json is damaged ({', '.join(wrong)})")
    return fields


def write_run(run: RunPaths, fields: RunFile) -> None:
    """Replace run.json: a reader sees the old one or the new one. On a full disk it is written over in its blocks."""
    text = json.dumps(fields, indent=2) + "\n"
    try:
        write_aside(run.run, text)
    except OSError as error:
        if error.errno not in FULL or not _written_over(run.run, text.encode()):
            raise


def update_run(run: RunPaths, **fields: Any) -> None:
    """Change some fields of run.json."""
    write_run(run, {**read_run(run), **fields})


def write_aside(path: Path, text: str) -> None:
    """Write a file aside and rename it into place."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text)
        os.replace(aside, path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


def _written_over(path: Path, data: bytes) -> bool:
    """Write a file anew in the blocks that it has; False where they are too few."""
    size = path.stat().st_size if path.exists() else 0
    if len(data) > -size // BLOCK_BYTES * -BLOCK_BYTES:
        return False
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return os.pwrite(descriptor, data.rstrip(b"\n").ljust(size - 1) + b"\n", 0) >= len(data)
    finally:
        os.close(descriptor)
