"""Real runs: the `dlrmx` command as a user types it, its processes as /proc shows them, its files on the disk."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dlrmx.launch.processes import PR_SET_PDEATHSIG
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import STEP_DIR, AttemptPaths, RunPaths
from dlrmx.runs.lines import Line

PROGRAM = str(Path(sys.executable).with_name("dlrmx"))
LIBC = ctypes.CDLL(None)
# In the environment of every process that a house starts, however deep: nobody escapes the search for orphans.
MARK = "DWELLING"
RECIPE = """\
dlrmx: 1
name: life
data: {kind: synthetic, rows: 20_000}
dense: {age: {}, price: {}}
features: {item: {}, page: {}, user: {pooling: mean}, day: {}}
tables: {item: {rows: ROWS, dim: 64}, page: {rows: ROWS, dim: 64}, user: {rows: 997, dim: 64}, day: {rows: 7, dim: 64}}
model: {kind: dlrm, bottom: [16, 64], top: [16, 1]}
optimizer:
  dense: {kind: adamw, lr: 0.01}
  sparse: {kind: adagrad, lr: 0.05}
train: {batch: 128, stop: {steps: 60}}
sharding:
  tables: {item: {types: [row_wise]}, page: {types: [table_wise]}, user: {types: [column_wise]}}
checkpoint: {every: {steps: 10}, keep: 2}
log: {every: {steps: 1}}
"""

Role = Literal["launcher", "node", "agent", "worker"]


@dataclass(frozen=True)
class Process:
    """One process of a run. rank: a worker's."""

    role: Role
    pid: int
    rank: int | None = None


@dataclass(frozen=True)
class House:
    """A folder with a recipe, its runs and a registry of its own."""

    dir: Path
    _started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def recipe(self) -> Path:
        return self.dir / "life.yaml"

    def run(self, name: str) -> RunPaths:
        return RunPaths(self.dir / "runs" / name)

    def start(self, *words: str | Path) -> "subprocess.Popen[bytes]":
        """Start `dlrmx words...` as a shell does: in a process group of its own. What it prints: `printed(pid)`."""
        env = {**os.environ, "XDG_STATE_HOME": str(self.dir / "state"), MARK: str(self.dir)}
        arguments = [PROGRAM, *map(str, words)]
        with (self.dir / "stdout").open("wb") as out, (self.dir / "stderr").open("wb") as err:
            process = subprocess.Popen(
                arguments,
                env=env,
                cwd=self.dir,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=0,
                preexec_fn=_die_with_the_tests,
            )
        self._started.append(process)
        for stream in ("stdout", "stderr"):
            (self.dir / stream).rename(self.dir / f"{process.pid}.{stream}")
        return process

    def stdout(self, process: "subprocess.Popen[bytes]") -> str:
        return (self.dir / f"{process.pid}.stdout").read_text()

    def stderr(self, process: "subprocess.Popen[bytes]") -> str:
        return (self.dir / f"{process.pid}.stderr").read_text()

    def execute(self, *words: str | Path, expect: int = 0) -> "subprocess.Popen[bytes]":
        """Run `dlrmx words...` to its end, which must come with exit code `expect`."""
        process = self.start(*words)
        assert process.wait(300) == expect, self.stdout(process) + self.stderr(process)
        return process

    def train(self, name: str, *settings: str) -> "subprocess.Popen[bytes]":
        """Start a run of the house's recipe, attached."""
        return self.start("train", self.recipe, "--name", name, *(word for text in settings for word in ("-s", text)))

    def processes(self) -> list[Process]:
        """All processes that live, but those that had no time yet to become what they are started for."""
        found = (_process(int(entry.name), self.dir) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [process for process in found if process]

    def empty(self) -> bool:
        return not self.processes()

    def kill_all(self) -> None:
        for process in self.processes():
            kill(process.pid)
        for launcher in self._started:
            launcher.wait(60)


def make_house(folder: Path, *, rows: int = 1_000) -> House:
    """A house whose recipe has two tables of `rows` rows (1,000 of them: 1 MB in a checkpoint)."""
    folder.mkdir(parents=True, exist_ok=True)
    house = House(folder)
    house.recipe.write_text(RECIPE.replace("ROWS", str(rows)))
    return house


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """False where it was gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def events(run: RunPaths, attempt: int, *names: str) -> list[Line]:
    return read_events(run.attempt(attempt), *names)


def newest(run: RunPaths) -> AttemptPaths | None:
    attempts = run.attempts()
    return attempts[-1] if attempts else None


def steps_saved(run: RunPaths) -> list[int]:
    """The steps of all published checkpoints, good or not, smallest first."""
    names = [path.name for path in run.checkpoints.iterdir()] if run.checkpoints.is_dir() else []
    return sorted(int(match[1]) for name in names if (match := STEP_DIR.match(name)))


def contents(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of all that lies under `folder`: differs when anybody writes there."""
    found = []
    for path in sorted(folder.rglob("*")):
        stat = path.stat()
        found.append((str(path), stat.st_size, stat.st_mtime_ns))
    return found


def wait_for(what: Callable[[], Any], *, seconds: float = 300, every: float = 0.01) -> Any:
    """The first true value of `what`; fails after so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := what():
            return value
        time.sleep(every)
    raise AssertionError(f"waited {seconds:g} s in vain")


def _die_with_the_tests() -> None:
    """Runs without end must not outlive tests that were killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _process(pid: int, mark: Path) -> Process | None:
    try:
        folder = Path(f"/proc/{pid}")
        environ = folder.joinpath("environ").read_bytes().split(b"\0")  # once: a dying process has none any more
        command = folder.joinpath("cmdline").read_bytes().decode().split("\0")
    except OSError:
        return None
    if f"{MARK}={mark}".encode() not in environ:
        return None
    if "torch.distributed.run" in command:
        return Process("agent", pid)
    if "dlrmx.train.worker" in command:
        rank = next(value for value in environ if value.startswith(b"RANK="))
        return Process("worker", pid, int(rank.removeprefix(b"RANK=")))
    if "dlrmx.launch.node" in command:
        return Process("node", pid)
    return Process("launcher", pid) if PROGRAM in command else None


def job(attempt: AttemptPaths) -> dict[str, Any]:
    """The attempt's job.json."""
    found: dict[str, Any] = json.loads(attempt.job.read_text())
    return found
