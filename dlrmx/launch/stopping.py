"""Why and when a node process is to stop: signals, its launcher's death, a stop file."""

import os
import signal
from types import FrameType

from dlrmx.runs.claim import request_stop
from dlrmx.runs.layout import AttemptPaths


class StopRequested(Exception):
    """Raised where a long piece of work finds that it is to stop."""


class StopSignals:
    """What this process was told so far; by: who asked first that it stops.

    SIGTERM, SIGUSR1 and SIGINT ask to save and stop; SIGQUIT and a second SIGINT mean now, without saving. With a
    `parent`, its death asks to stop.
    """

    def __init__(self, parent: int | None = None) -> None:
        self._parent = parent
        self.by: str | None = None
        self._interrupts = 0
        self.killed = False

    def install(self) -> None:
        """Take over the signals. From the main thread."""
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self._received)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # held back while we started

    def told(self, by: str) -> None:
        """Another node's process was asked to stop."""
        self.by = self.by or by

    def asked(self, attempt: AttemptPaths) -> bool:
        """Whether the attempt is to stop; a signal or a dead launcher is turned into its stop file."""
        if self.by is None and self._parent is not None and os.getppid() != self._parent:
            self.by = f"the end of its launcher (pid {self._parent})"
        if self.by is not None:
            request_stop(attempt, self.by)
        return attempt.stop_request.exists()

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.by = self.by or signal.Signals(number).name
        self._interrupts += number == signal.SIGINT
        self.killed = self.killed or number == signal.SIGQUIT or self._interrupts > 1
