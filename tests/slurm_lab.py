"""A real Slurm cluster for tests: its commands, its nodes' deaths, and jobs of ours on it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dlrmx.launch.remote import RemoteJob
from dlrmx.launch.submit import submit
from dlrmx.runs.claim import create_run
from dlrmx.runs.layout import RunPaths
from fake_job import PATIENCE_S, FakeJob, make_job, wait_for

NODES = 4


@dataclass(frozen=True)
class Lab:
    """A cluster of n0 to n3. tools: the folder of slurm-up and slurm-down; None where it is somebody's real cluster."""

    conf: Path
    env: dict[str, str]
    tools: Path | None

    def slurm(self, *words: str, check: bool = True) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout.strip()

    def give_time_to_save(self) -> None:
        """KillWait is Slurm's default again: the lab's 5 s from SIGTERM to SIGKILL are little on a busy machine."""
        self.conf.write_text(self.conf.read_text().replace("KillWait=5\n", "KillWait=30\n"))
        self.slurm("scontrol", "reconfigure")

    def kill_node(self, node: str) -> None:
        """As if its machine had died."""
        self._tool("slurm-down", node)

    def heal(self) -> None:
        """Bring all dead nodes back."""
        self._tool("slurm-up")

    @contextmanager
    def frozen_slurmd(self, node: str) -> Iterator[None]:
        """Slurm's daemon on a node does not answer; all else on it goes on."""
        (daemon,) = [pid for pid in _inside(self.conf.parent / "run" / node) if _name(pid) == "slurmd"]
        os.kill(daemon, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(daemon, signal.SIGCONT)

    def in_queue(self, job: str) -> str:
        """The job's state as squeue has it, "" once it is forgotten."""
        return self.slurm("squeue", "-h", "-t", "all", "-o", "%T", "-j", job, check=False)

    def await_requeue(self, job: str, start: int = 1) -> None:
        """Return when Slurm counts so many starts after the first, whether the newest has begun or not."""
        self._await(job, lambda: int(self._shown(job, "Restarts")) >= start)

    def restart(self, job: str, start: int = 1) -> None:
        """Return when that start has begun: in seconds, where Slurm would hold it back for two minutes."""
        self.await_requeue(job, start)
        self._await(job, lambda: self._shown(job, "JobState") == "RUNNING" or self._hasten(job))

    def limit(self, job: str) -> None:
        """Let its time be up soon, but not before Slurm, which looks twice a minute, has given it its warning."""
        minutes, seconds = map(int, self._shown(job, "RunTime").split(":")[-2:])
        self._set(job, f"TimeLimit={(minutes * 60 + seconds + 35) // 60 + 1}")

    def _hasten(self, job: str) -> bool:
        """Shorten the hold. Again and again: where the old start is still being cleared away, Slurm sets it anew.

        Not to this very second: a node refuses a start of the second in which it ended the one before ("credential
        revoked"), and Slurm then calls the job failed. The hold is there for that.
        """
        state, reason, begin = (self._shown(job, field) for field in ("JobState", "Reason", "StartTime"))
        held = state == "PENDING" and reason == "BeginTime" and begin != "Unknown"
        if held and datetime.fromisoformat(begin) > datetime.now() + timedelta(seconds=3):
            self._set(job, "StartTime=now+2")
        return False

    def _shown(self, job: str, field: str) -> str:
        return self.slurm("scontrol", "show", "job", "-o", job).partition(f" {field}=")[2].split()[0]

    def await_state(self, job: str, state: str) -> None:
        """Return when squeue says so."""
        self._await(job, lambda: self.in_queue(job) == state)

    def seen(self, job: str) -> str:
        """All that Slurm says of a job and of the nodes: for a test that waited in vain."""
        asked = (
            ("scontrol", "show", "job", job),
            ("scontrol", "show", "node"),
            ("squeue", "-a"),
            ("sacct", "-D", "-j", job),
        )
        return "\n".join(self.slurm(*words, check=False) for words in asked)

    def _await(self, job: str, what: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """As `wait_for`, for what starts a process each time it is asked."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"waited {seconds:g} s in vain\n{self.seen(job)}"
            time.sleep(0.3)

    def _set(self, job: str, change: str) -> None:
        self.slurm("scontrol", "update", f"JobId={job}", change)

    def _tool(self, name: str, *words: str) -> None:
        assert self.tools is not None
        subprocess.run([self.tools / name, *words], env=self.env, capture_output=True, check=True, timeout=PATIENCE_S)


@dataclass(frozen=True)
class LabJob:
    """A submitted job with fake workers."""

    fake: FakeJob
    job: RemoteJob
    lab: Lab

    @property
    def run(self) -> RunPaths:
        return self.fake.run

    @property
    def id(self) -> str:
        return self.job.app

    def events(self, attempt: int, *names: str) -> list[Any]:
        return self.fake.events(attempt, *names)

    def await_step(self, step: int, attempt: int = 1) -> None:
        """Return when the attempt has saved this step or a later one."""
        wait_for(lambda: any(event["step"] >= step for event in self.events(attempt, "saved")))

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """The exit code of the job, at its end."""
        code: int = wait_for(lambda: answer(self.job.poll()), seconds=seconds)[0]
        return code

    def log(self) -> str:
        return self.run.launch_log.read_text()


def _inside(record: Path) -> list[int]:
    """All processes of a node, by the pid of this machine."""
    (init,) = Path(f"/proc/{record.read_text().strip()}/task/{record.read_text().strip()}/children").read_text().split()
    space = os.readlink(f"/proc/{init}/ns/pid")
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "ns" / "pid") == space:
                found.append(int(entry.name))
    return found


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def answer(code: int | None) -> tuple[int] | None:
    return None if code is None else (code,)


def fake_job(
    lab: Lab, folder: Path, fake: dict[str, Any], *settings: str, nodes: int = NODES, run: str = "tiny-1"
) -> FakeJob:
    """A job of fake workers, one per node."""
    cluster = (
        "cluster.scheduler=slurm",
        f"cluster.nodes={nodes}",
        "cluster.workers_per_node=1",
        "cluster.sbatch.mem=2G",
    )
    return make_job(folder, fake, run=run, settings=[*cluster, "cluster.grace.minutes=0.5", *settings])


def begin(lab: Lab, job: FakeJob) -> LabJob:
    """Submit it, as a new run."""
    from dlrmx.launch.inputs import parse_recipe
    from dlrmx.recipe.fingerprint import fingerprint

    create_run(Path(job.spec.root), "tiny", job.spec.run, fingerprint(parse_recipe(job.spec.recipe)))
    handle = submit(job.spec, job.profile, attached=False)
    assert isinstance(handle, RemoteJob)
    return LabJob(job, handle, lab)


def find_lab(shared: Path) -> Path | None:
    """The folder of slurm-up, where it is."""
    tools = shared / "tools"
    return tools if (tools / "slurm-up").is_file() and (tools / "slurm-down").is_file() else None


def lab_env(folder: Path) -> dict[str, str]:
    """The environment of a cluster of our own, beside others that may run on this machine."""
    addresses = subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True, check=False).stdout
    numbers = (number % 250 + 2 for number in range(os.getpid(), os.getpid() + 250))
    free = next(number for number in numbers if f" 10.76.{number}.1/" not in addresses)
    return {
        **os.environ,
        "SLURM_LAB_DIR": str(folder),
        "SLURM_LAB_NET": f"10.76.{free}",
        "SLURM_LAB_NODES": str(NODES),
    }


PROFILE = """\
scheduler: slurm
nodes: 4
workers_per_node: 1
root: {root}
python: {python}
grace: {{minutes: 0.5}}
sbatch: {{mem: 4G}}
"""


@dataclass(frozen=True)
class LabCli:
    """The `dlrmx` command in a folder of its own, with a profile of the lab."""

    folder: Path
    env: dict[str, str]

    def run(self, name: str) -> RunPaths:
        return RunPaths(self.folder / "runs" / name)

    def settings(self, *groups: "str | tuple[str, ...]") -> list[str]:
        texts = [text for group in groups for text in ([group] if isinstance(group, str) else group)]
        return [word for text in texts for word in ("-s", text)]

    def start(self, *words: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
        program = [sys.executable, "-c", "from dlrmx_cli.main import main; main()", *words]
        return subprocess.Popen(
            program,
            cwd=self.folder,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def execute(
        self, *words: str, expect: int = 0, env: dict[str, str] | None = None, seconds: float = PATIENCE_S
    ) -> "subprocess.CompletedProcess[str]":
        process = self.start(*words, env=env)
        out, err = process.communicate(timeout=seconds)
        assert process.returncode == expect, out + err
        return subprocess.CompletedProcess(words, process.returncode, out, err)


def lab_cli(lab: Lab, folder: Path) -> LabCli:
    (folder / "clusters").mkdir()
    (folder / "clusters" / "lab.yaml").write_text(PROFILE.format(root=folder / "runs", python=sys.executable))
    state = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
    return LabCli(folder, {**lab.env, **state})
