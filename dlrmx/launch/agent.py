"""One torch.distributed.run: started so that it cannot outlive us, watched, and ended when its workers do not end.

Left alone it kills the other workers only 30 s after one has died, because they ignore SIGTERM.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dlrmx.launch.place import Place, interface_of
from dlrmx.launch.processes import NOT_SEEN, Worker, die_with_parent, is_alive, kill_group, workers_of
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import AttemptPaths
from dlrmx.units import format_number_of

POLL_S = 0.2
# After one worker's death the others get so long to say what they saw before they are killed.
AFTER_DEATH_S = 5.0
# The agent starts its workers together: one that is not seen so long after another died before we looked.
SPAWN_S = 2.0
# Once all workers are dead the agent has nothing left to do but to say so.
AGENT_END_S = 3.0

Ended = Literal["itself", "worker_died", "others_over", "grace_over", "killed"]


@dataclass(frozen=True)
class AgentEnd:
    """How the agent ended. gone: its workers in the order they were seen dead; returncode < 0: by that signal."""

    returncode: int
    ended: Ended
    gone: tuple[Worker, ...]


def agent_env(
    environ: Mapping[str, str], extra: Mapping[str, str], workers: int, address: str | None = None
) -> dict[str, str]:
    """The agent's and workers' environment: the shell's, without what would steer torchrun or torchx, and `extra`.

    address: this machine's, as other nodes reach it. gloo would use the one that the host's name resolves to, which on
    some machines is 127.0.1.1.
    """
    steering = ("TORCHX_", "TORCHELASTIC_", "TORCH_ELASTIC_", "PET_", "DLRMX_")
    kept = {name: value for name, value in environ.items() if not name.startswith(steering) and name not in _PER_WORKER}
    threads = max(1, _cpus(environ) // workers)
    ours = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": str(threads)}
    if address is not None and (interface := interface_of(address)) is not None:
        ours["GLOO_SOCKET_IFNAME"] = environ.get("GLOO_SOCKET_IFNAME", interface)
    return {**kept, **ours, **extra}


def _cpus(environ: Mapping[str, str]) -> int:
    """The processors that are this job's here: Slurm gives a job some of a node's and may bind it to none of them."""
    ours = len(os.sched_getaffinity(0))
    given = environ.get("SLURM_CPUS_PER_TASK", "")
    return min(ours, int(given)) if given.isdecimal() else ours


def start_agent(
    attempt: AttemptPaths,
    place: Place,
    *,
    port: int,
    workers: int,
    worker: Sequence[str],
    env: Mapping[str, str],
    grace_s: float,
) -> subprocess.Popen[bytes]:
    """Start the agent in a session of its own; it dies with this process. From the main thread.

    port: of node 0, where the agents of several nodes meet.
    """
    run = attempt.dir.parent.parent
    command = [sys.executable, "-m", "torch.distributed.run", *_meeting(place, port, f"{run.name}-{attempt.number}")]
    # SIGTERM stays ignored; workers that exit non-zero are our business, not the agent's.
    command += ["--signals-to-handle=SIGINT", f"--shutdown-timeout={int(grace_s)}", "--max-restarts=0"]
    command += [f"--nproc-per-node={workers}", f"--monitor-interval={POLL_S}", *worker, str(run), str(attempt.number)]
    with attempt.node_log(place.node).open("ab") as log:
        node = f"node {place.node} of {place.nodes}, {socket.gethostname()}"
        began, ranks = time.strftime("%Y-%m-%d %H:%M:%S %z"), format_number_of(workers, "worker")
        log.write(f"=== attempt {attempt.number}, {node}, {ranks}, {began}\n".encode())
        log.flush()
        return subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )


def _meeting(place: Place, port: int, name: str) -> list[str]:
    """torch.distributed.run's options for finding the other nodes."""
    if place.nodes == 1:
        return ["--standalone"]
    nodes = [f"--nnodes={place.nodes}", f"--node-rank={place.node}"]
    return [
        *nodes,
        "--rdzv-backend=static",
        f"--rdzv-id={name}",
        f"--master-addr={place.host}",
        f"--master-port={port}",
    ]


@dataclass
class Watch:
    """Waits for an agent's end, and brings it about where it does not come by itself.

    stop_asked, killed and others_over (workers of other nodes) are asked at each look, five times a second.
    """

    process: subprocess.Popen[bytes]
    attempt: AttemptPaths
    workers: int
    grace_s: float
    stop_asked: Callable[[], bool]
    killed: Callable[[], bool]
    others_over: Callable[[], bool]
    _seen: dict[int, Worker] = field(default_factory=dict)
    _gone: list[Worker] = field(default_factory=list)
    _first_seen: float | None = None
    _first_gone: float | None = None
    _stop_since: float | None = None
    _over_since: float | None = None

    def wait(self) -> AgentEnd:
        """Return when the agent and all its workers are gone."""
        ended: Ended = "itself"
        while self.process.poll() is None:
            time.sleep(POLL_S)
            self._look()
            verdict = self._verdict(time.monotonic())
            if verdict is not None and self.process.poll() is None:
                ended = verdict
                self._kill()
        returncode = self.process.wait()
        self._kill_workers()  # those whose agent was killed and that do not die with it
        self._look()
        return AgentEnd(returncode, ended, tuple(self._gone))

    def _kill(self) -> None:
        """Kill the workers; the agent then says how each of them ended. Kill it too, where it does not end."""
        self._kill_workers()
        try:
            self.process.wait(AGENT_END_S)
        except subprocess.TimeoutExpired:
            kill_group(self.process.pid)

    def _kill_workers(self) -> None:
        for worker in self._seen.values():
            if is_alive(worker):
                kill_group(worker.pid)

    def _look(self) -> None:
        """Note new workers and newly dead ones."""
        now = time.monotonic()
        if len(self._seen) < self.workers:
            self._look_for_workers()
        if self._seen and self._first_seen is None:
            self._first_seen = now
        dead = [worker for worker in self._seen.values() if worker not in self._gone and not is_alive(worker)]
        self._gone.extend(dead)
        missing = len(self._seen) < self.workers and self._first_seen is not None and now > self._first_seen + SPAWN_S
        if (dead or missing) and self._first_gone is None:
            self._first_gone = now

    def _look_for_workers(self) -> None:
        # Events first: whoever wrote one and is no child of the agent afterwards is dead.
        started = read_events(self.attempt, "worker_started")
        self._seen.update((worker.pid, worker) for worker in workers_of(self.process.pid))
        for event in started:
            self._seen.setdefault(event["pid"], Worker(event["rank"], event["pid"], NOT_SEEN))

    def _verdict(self, now: float) -> Ended | None:
        """Why the agent must be killed now, or None."""
        if self.killed():
            return "killed"
        if self._first_gone is not None and now > self._first_gone + self._patience():
            return "worker_died"
        if self.stop_asked() and self._stop_since is None:
            self._stop_since = now
        if self.others_over() and self._over_since is None:
            self._over_since = now
        # With all workers gone, ours too, the agent only waits for agents of other nodes: for minutes, were one lost.
        patience = AFTER_DEATH_S if len(self._gone) == self.workers else self._patience()
        if self._over_since is not None and now > self._over_since + patience:
            return "others_over"
        if self._stop_since is not None and now > self._stop_since + self.grace_s:
            return "grace_over"
        return None

    def _patience(self) -> float:
        """Seconds for the others after the first worker's end; more where the run said that it is done."""
        return self.grace_s if read_events(self.attempt, "finished", "stopped") else AFTER_DEATH_S


_PER_WORKER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
