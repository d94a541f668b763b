"""The node process of any node but the first: joins node 0, takes part in its attempts, ends when it says so.

Where the run's folder is not shared, it keeps one of its own, with all that its workers need.
"""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrmx import __version__
from dlrmx.data.files import NoSuchFiles
from dlrmx.errors import ClusterError, DlrmxError, InputError
from dlrmx.launch.agent import Watch, agent_env, start_agent
from dlrmx.launch.crew import JOIN_S, POLL_S
from dlrmx.launch.inputs import prepare_data
from dlrmx.launch.job import JobSpec
from dlrmx.launch.link import Link, Message
from dlrmx.launch.outcome import note_silent_death
from dlrmx.launch.place import PORTS, START_AGAIN, Place
from dlrmx.launch.stopping import StopRequested, StopSignals
from dlrmx.recipe.clusters import workers_per_node
from dlrmx.recipe.fingerprint import fingerprint
from dlrmx.recipe.profiles import Profile
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.claim import create_run
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.lines import LineTail, append_line
from dlrmx.runs.run_file import write_aside

CONNECT_S = 5.0
HELLO_S = 10.0
AGAIN_S = 0.3
# A folder that node 0 has made on a shared disk may take a moment to be seen here.
SHARED_S = 2.0


@dataclass
class Member:
    """One node's part in a job."""

    spec: JobSpec
    recipe: Recipe
    profile: Profile
    place: Place
    signals: StopSignals
    worker: Sequence[str]
    link: Link
    _inbox: list[Message] = field(default_factory=list)
    _tail: LineTail | None = None
    _own: AttemptPaths | None = None
    _ends: bool = False
    _passed_on: bool = False

    def serve(self) -> int:
        """Take part in attempt after attempt until node 0 says that the job is over; the exit code."""
        while message := self._await("attempt", "over"):
            if message["kind"] == "over":
                code: int = message["exit_code"]
                return code
            self._take_part(message)
            self._pump()
            self.link.tell("ended")
        # Whether to try again is for node 0 to say, which remembers the attempts: a failure here would end the job.
        print(f"node 0 is gone: {self.link.lost}", file=sys.stderr, flush=True)
        return START_AGAIN

    def _take_part(self, message: Message) -> None:
        attempt, shared = self._open(message)
        self._own, self._tail = attempt, LineTail(attempt.events)
        try:
            data = self._prepare(shared)
        except StopRequested:
            return
        except (DlrmxError, OSError) as error:
            code = error.exit_code if isinstance(error, DlrmxError) else 1
            self.link.tell("refused", cause=type(error).__name__, message=str(error), exit_code=code)
            return
        self.link.tell("prepared")
        go = self._await("go")
        if go is None:
            return
        if not shared and data is not None:
            _write_inputs(attempt, go, data)
        self._run_workers(attempt, go["port"])

    def _run_workers(self, attempt: AttemptPaths, port: int) -> None:
        workers = workers_per_node(self.profile)
        grace_s = self.profile.grace.minutes * 60
        process = start_agent(
            attempt,
            self.place,
            port=port,
            workers=workers,
            worker=self.worker,
            env=agent_env(os.environ, self.profile.env, workers, self.link.own_address),
            grace_s=grace_s,
        )
        watch = Watch(
            process,
            attempt,
            workers,
            grace_s,
            stop_asked=self._pump,
            killed=lambda: self.signals.killed or self.link.lost is not None,
            others_over=lambda: self._ends,
        )
        end = watch.wait()
        self._pump()
        if not read_events(attempt, "finished", "stopped"):
            note_silent_death(attempt, end, grace_s)

    def _open(self, message: Message) -> tuple[AttemptPaths, bool]:
        """The attempt's folder, and whether it is the very one that node 0 has made."""
        run = RunPaths(Path(self.spec.root) / self.spec.run)
        attempt = run.attempt(message["number"])
        deadline = time.monotonic() + SHARED_S
        while not (shared := read_events(attempt, "claimed")[:1] == message["claimed"]) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if not shared:
            if not run.run.exists():
                create_run(Path(self.spec.root), self.recipe.name, self.spec.run, fingerprint(self.recipe), adopt=True)
            shutil.rmtree(attempt.dir, ignore_errors=True)  # of another life of this node
            attempt.logs.mkdir(parents=True)
        return run.attempt(message["number"], self.place.node), shared

    def _prepare(self, shared: bool) -> Path | None:
        """Our share of it, or all where no folder is shared; None where only others see the files."""
        try:
            return prepare_data(self.spec, self.recipe, self._report, node=self.place.node)
        except NoSuchFiles:
            if shared:
                return None
            raise

    def _report(self, what: str, done: int, total: int | None) -> None:
        """Progress of this node's preparation; node 0 tells that of all."""
        self._pump()
        if self._ends or self.link.lost is not None:
            raise StopRequested

    def _await(self, *kinds: str) -> Message | None:
        """The next message of one of these kinds; None where the attempt or the connection ends before it."""
        while True:
            for message in self._inbox:
                if message["kind"] in kinds:
                    self._inbox.remove(message)
                    return message
            if self.link.lost is not None or (self._ends and "go" in kinds):
                return None
            self._pump()
            self.link.wait_for_input(POLL_S)

    def _pump(self) -> bool:
        """Tell node 0 what happened here, and take in what it says. False: no stop is this node's own affair."""
        if self.signals.by is not None and not self._passed_on:
            self._passed_on = True
            self.link.tell("stop", by=self.signals.by)
        for line in self._tail.new() if self._tail else ():
            if line.get("event") not in ("finished", "stopped"):  # those came from there
                self.link.tell("event", line=line)
        for message in self.link.hear():
            match message["kind"]:
                case "event" if self._own is not None:
                    append_line(self._own.events, message["line"])
                case "end":
                    self._ends = True
                case "attempt":  # what was said of the one before is past
                    self._ends, self._inbox = False, [message]
                case _:
                    self._inbox.append(message)
        return False


def join(place: Place, token: str, *, stop_asked: Callable[[], bool], seconds: float = JOIN_S) -> Link:
    """A connection to node 0 of this job.

    Raises ClusterError where there is none or a stop is asked for before, InputError where node 0 refuses us.
    """
    deadline = time.monotonic() + seconds
    said = "nobody answers"
    while True:
        for port in range(place.port, place.port + PORTS):
            link, said = _try(place, port, token, said)
            if link is not None:
                return link
        if time.monotonic() > deadline or stop_asked():
            hint = "the nodes must reach each other; node 0's own words are in launch.log"
            raise ClusterError(f"node {place.node} did not find node 0 at {place.host}:{place.port}: {said}", hint=hint)
        time.sleep(AGAIN_S)


def _try(place: Place, port: int, token: str, said: str) -> tuple[Link | None, str]:
    """A connection to whoever listens there, where it is our node 0; else the newest reason why not."""
    try:
        link = Link(socket.create_connection((place.host, port), CONNECT_S))
    except OSError as error:
        return None, said if isinstance(error, ConnectionRefusedError) else str(error)
    link.tell("hello", token=token, node=place.node, host=socket.gethostname(), dlrmx=__version__)
    answer = next(iter(link.wait(HELLO_S)), {"kind": "silence", "reason": "who listens there is silent"})
    if answer["kind"] == "welcome":
        return link, ""
    link.close()
    if answer.get("final"):
        raise InputError(answer["reason"], hint="all nodes need the dlrmx that submitted: profile.python names it")
    return None, str(answer.get("reason"))


def _write_inputs(attempt: AttemptPaths, go: Message, data: Path) -> None:
    """What node 0's workers read from its folder, for ours; the prepared data are this node's own."""
    job: dict[str, Any] = {**go["job"], "data": str(data)}
    attempt.recipe.write_text(go["recipe"])
    write_aside(attempt.plan, go["plan"])
    write_aside(attempt.job, json.dumps(job, indent=2) + "\n")
