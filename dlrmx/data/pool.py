"""Runs the tasks of a preparation on all cores: in worker processes, or here where there is too little to do."""

import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import asdict

from dlrmx.data import claims
from dlrmx.data.share import Share
from dlrmx.data.source import Told, Unreadable
from dlrmx.data.work import Task, WorkFolder, open_files, run_task
from dlrmx.data.writer import Identity
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.schema import Recipe

# Less than so many bytes of input are read faster than workers start.
INLINE_BYTES = 64 << 20
# So often the caller hears that work goes on, and may raise to end it.
HEARTBEAT_S = 0.5


class WorkerLost(InputError):
    """A process that prepared data is gone; it says nothing of the data."""


def run_tasks(recipe: Recipe, work: WorkFolder, identity: Identity, share: Share, told: Told) -> None:
    """Do all tasks, or see them done by others. Raises InputError at the first that fails; workers end with us."""
    count = min(len(os.sched_getaffinity(0)), len(share.left))
    if count < 2 or share.input_bytes < INLINE_BYTES:
        _run_here(recipe, work, identity, share, told)
        return
    workers: list[_Worker] = []
    try:
        with selectors.DefaultSelector() as selector:
            for _ in range(count):
                worker = _Worker()
                workers.append(worker)
                worker.order(recipe, work, identity)
                selector.register(worker.output, selectors.EVENT_READ, worker)
            _attend(selector, list(workers), share, told)
    finally:
        for worker in workers:
            worker.end()


def _run_here(recipe: Recipe, work: WorkFolder, identity: Identity, share: Share, told: Told) -> None:
    source = open_files(recipe, identity)
    while share.left:
        if task := share.take():
            run_task(source, work, identity, task, told)
        elif share.left:
            told(0)
            time.sleep(claims.WAIT_S)


def _attend(selector: selectors.BaseSelector, free: "list[_Worker]", share: Share, told: Told) -> None:
    """Give tasks to workers that are free, until all are done."""
    count = len(free)
    while share.left or len(free) < count:
        while free and (task := share.take()):
            free.pop().give(task)
        ready = selector.select(min(HEARTBEAT_S, claims.WAIT_S) if share.left or len(free) < count else 0)
        if not ready:
            told(0)
        for key, _ in ready:
            worker: _Worker = key.data
            if worker.hear(told):
                free.append(worker)


class _Worker:
    """A process of dlrmx.data.worker."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "dlrmx.data.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self.output = self._process.stdin, self._process.stdout
        self._heard = b""

    def order(self, recipe: Recipe, work: WorkFolder, identity: Identity) -> None:
        """What all its tasks are of."""
        order = {"recipe": recipe.model_dump(mode="json"), "work": str(work.path), "identity": asdict(identity)}
        self._say(json.dumps(order))

    def give(self, task: Task) -> None:
        self._say(task.to_json())

    def _say(self, line: str) -> None:
        try:
            self._input.write(line.encode() + b"\n")
        except BrokenPipeError:
            raise self._lost() from None

    def hear(self, told: Told) -> bool:
        """Take in what it says; whether its task is done. Raises what went wrong there, or that the worker is gone."""
        raw = os.read(self.output.fileno(), 65_536)
        if not raw:
            raise self._lost()
        *lines, self._heard = (self._heard + raw).split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            if "problems" in message:
                kind = Unreadable if message["unreadable"] else InputError
                raise kind([Problem(**problem) for problem in message["problems"]])
            if "errno" in message:
                raise OSError(message["errno"], message["strerror"])
            told(message.get("rows", 0))
        return any("done" in message for message in messages)

    def _lost(self) -> WorkerLost:
        code = self._process.wait()
        hint = "If the machine ran out of memory, prepare on fewer cores: taskset -c 0 dlrmx data prepare RECIPE"
        return WorkerLost(f"a process that prepares data ended with code {code}", hint=hint)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._input.close()
        self.output.close()
