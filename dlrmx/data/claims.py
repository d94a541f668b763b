"""Who does what, where several processes prepare the same data, on one machine or on many that share a folder.

A claim is a folder with its owner's name in it, made aside and renamed: of two that want the same, one fails. It holds
while its owner's pulse, a file that is touched again and again, is there and beats; what a dead process held is
anybody's. Where one was only slow, a thing is done twice; that costs time and no more, for results are the same bytes
whoever made them and come by a rename. Of the file system it takes atomic renames, which NFS has, and no locks; no
clock is compared with another machine's.
"""

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from dlrmx.data.output import aside, look_afresh

PULSE_S = 5.0
# A pulse that was not seen to beat for so long is a dead one's. NFS shows what another machine wrote a minute late.
DEAD_S = 120.0
# How often one that has to wait looks again.
WAIT_S = 0.5


class Claims:
    """The claims in a folder, and our own. A context: what is claimed within it is held until it is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._me = f"{_place()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._beats: dict[str, tuple[int, float]] = {}
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "Claims":
        for pulse in self._folder.glob(f"pulse-{_place()}-*"):
            if self._is_dead(pulse.name.removeprefix("pulse-")):
                pulse.unlink(missing_ok=True)  # so that other machines need not wait for it
        self._pulse(self._me).touch()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()
        self._pulse(self._me).unlink(missing_ok=True)

    def take(self, name: str) -> bool:
        """Whether it is ours to do now: no other that lives does it."""
        claim = self._claim(name)
        owner = _owner(claim)
        if owner is not None:
            if owner == self._me or not self._is_dead(owner):
                return False
            self.drop(name)
        with aside(claim) as path:
            path.mkdir()
            (path / self._me).touch()
        return _owner(claim) == self._me

    def drop(self, name: str) -> None:
        """Whoever holds it, it is free again."""
        dropped = self._folder / f".dropped-{secrets.token_hex(8)}"
        with suppress(FileNotFoundError):
            self._claim(name).rename(dropped)
            shutil.rmtree(dropped, ignore_errors=True)

    def take_or_wait(self, name: str, is_done: Callable[[], bool], wait: Callable[[], None]) -> bool:
        """Whether it is ours to do. If another does it, False once it is done; `wait` is called meanwhile."""
        while not is_done():
            if self.take(name):
                return True
            wait()
            time.sleep(WAIT_S)
            look_afresh(self._folder)
        return False

    def alone(self) -> bool:
        """Whether no other process that lives works here."""
        owners = [pulse.name.removeprefix("pulse-") for pulse in self._folder.glob("pulse-*")]
        return all(owner == self._me or self._is_dead(owner) for owner in owners)

    def _claim(self, name: str) -> Path:
        return self._folder / f"claim-{name}"

    def _pulse(self, owner: str) -> Path:
        return self._folder / f"pulse-{owner}"

    def _beat(self) -> None:
        while not self._left.wait(PULSE_S):
            with suppress(OSError):
                os.utime(self._pulse(self._me))

    def _is_dead(self, owner: str) -> bool:
        try:
            beat = self._pulse(owner).stat().st_mtime_ns
        except FileNotFoundError:
            return True
        place, pid, _ = owner.rsplit("-", 2)
        if place == _place():
            return not _is_running(pid)
        before, since = self._beats.get(owner, (None, 0.0))
        if beat != before:
            self._beats[owner] = (beat, time.monotonic())
            return False
        return time.monotonic() - since > DEAD_S


def _owner(claim: Path) -> str | None:
    """None where nobody holds it."""
    try:
        return next(iter(os.listdir(claim)), None)
    except FileNotFoundError:
        return None


def _place() -> str:
    """Where a process number means one process: this start of this machine, within one container."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    space = os.readlink("/proc/self/ns/pid")
    return f"{boot}.{space.strip('pid:[]')}"


def _is_running(pid: str) -> bool:
    """Not gone, nor a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
