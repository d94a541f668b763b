"""Tells a run's files through the node process's output, for a launcher that cannot see them; mirror.py listens.

One JSON line per piece: {"dlrmx": file inside the run, "at": offset in bytes or null for the whole file, "text"}. Bytes
that are no UTF-8 travel as lone surrogates. To hear a piece twice does no harm: a pod's log is read from its beginning.
"""

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dlrmx.runs.layout import RunPaths

TELL_VARIABLE = "DLRMX_TELL"
EVERY_S = 0.5
PIECE_BYTES = 8_192  # kubelets cut lines at 16 KiB


@contextmanager
def telling(run: RunPaths, environ: Mapping[str, str], output: TextIO | None = None) -> Iterator[None]:
    """Tell what is written into the run meanwhile, and what was there before, where the environment asks for it."""
    if TELL_VARIABLE not in environ:
        yield
        return
    teller, over = _Teller(run, output or sys.stdout), threading.Event()
    thread = threading.Thread(target=teller.go_on, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        teller.tell()


class _Teller:
    def __init__(self, run: RunPaths, output: TextIO) -> None:
        self._run, self._output = run, output
        self._told: dict[Path, int] = {}
        self._whole: dict[Path, bytes] = {}

    def go_on(self, over: threading.Event) -> None:
        while not over.wait(EVERY_S):
            self.tell()

    def tell(self) -> None:
        """Everything that is new. run.json comes last: who reads that the run has ended has read all."""
        for attempt in self._run.attempts():
            for path in (attempt.recipe, attempt.job):
                self._tell_whole(path)
            for path in (attempt.events, attempt.records, *sorted(attempt.logs.glob("node-*.log"))):
                self._tell_growth(path)
        self._tell_whole(self._run.run)
        self._output.flush()

    def _tell_whole(self, path: Path) -> None:
        data = path.read_bytes() if path.is_file() else b""
        if data and self._whole.get(path) != data:
            self._whole[path] = data
            self._say(path, None, data)

    def _tell_growth(self, path: Path) -> None:
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self._told.get(path, 0))
            while piece := file.read(PIECE_BYTES):
                at = self._told.get(path, 0)
                self._say(path, at, piece)
                self._told[path] = at + len(piece)

    def _say(self, path: Path, at: int | None, data: bytes) -> None:
        name = path.relative_to(self._run.dir).as_posix()
        text = data.decode("utf-8", "surrogateescape")
        self._output.write(json.dumps({"dlrmx": name, "at": at, "text": text}) + "\n")
