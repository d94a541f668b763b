"""Processes as Linux's /proc shows them: an agent's workers, whether they live, and how they are made to end."""

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
# Start tick of a process that was gone before it could be looked at.
NOT_SEEN = -1


@dataclass(frozen=True)
class Worker:
    """One worker process. started: the kernel's start tick, so that a reused pid is not taken for it."""

    rank: int
    pid: int
    started: int


def workers_of(agent: int) -> list[Worker]:
    """The agent's children that have a RANK: its workers, not what it runs in passing."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) and stat.parent == agent:
            rank = _rank(int(entry.name))
            if rank is not None:
                found.append(Worker(rank, int(entry.name), stat.started))
    return found


def is_alive(worker: Worker) -> bool:
    """Whether the process still runs: not gone, not a zombie, not another one of that pid."""
    stat = _stat(worker.pid)
    return stat is not None and stat.started == worker.started and stat.state not in "ZX"


def kill_group(pid: int) -> None:
    """SIGKILL to the process group that `pid` leads; nothing where it is gone."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def die_with_parent() -> Callable[[], None]:
    """What a new child calls before exec: SIGTERM and SIGUSR1 ignored, SIGKILL when the thread that started it dies.

    They are ignored because schedulers send them to every process at once, and they mean: save and stop, which takes a
    while. Children inherit that. Start the child from the main thread.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def prepare() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl was called
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command's name, in brackets, may hold anything.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], parent=int(fields[1]), started=int(fields[19]))


def _rank(pid: int) -> int | None:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    values = [entry.removeprefix(b"RANK=") for entry in environ.split(b"\0") if entry.startswith(b"RANK=")]
    return int(values[0]) if values and values[0].isdigit() else None
