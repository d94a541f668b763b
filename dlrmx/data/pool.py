"""Runs the tasks of a preparation on all cores: in worker processes, or here where there is too little to do."""

import json
import os
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict

from dlrmx.data.source import Told
from dlrmx.data.work import Task, WorkFolder, open_files, run_task
from dlrmx.data.writer import Identity
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.schema import Recipe

# Less than so many bytes of input are read faster than workers start.
INLINE_BYTES = 64 << 20
# So often the caller hears that work goes on, and may raise to end it.
HEARTBEAT_S = 0.5


def run_tasks(recipe: Recipe, work: WorkFolder, identity: Identity, tasks: Sequence[Task], told: Told) -> None:
    """Do all tasks. Raises InputError at the first that fails; workers end with us."""
    input_bytes = sum(os.path.getsize(path) for path in {task.piece.path for task in tasks})
    count = min(len(os.sched_getaffinity(0)), len(tasks))
    if count < 2 or input_bytes < INLINE_BYTES:
        source = open_files(recipe, identity)
        for task in tasks:
            run_task(source, work, identity, task, told)
        return
    workers: list[_Worker] = []
    waiting = deque(tasks)
    try:
        with selectors.DefaultSelector() as selector:
            for _ in range(count):
                worker = _Worker()
                workers.append(worker)
                worker.order(recipe, work, identity)
                worker.give(waiting.popleft())
                selector.register(worker.output, selectors.EVENT_READ, worker)
            _attend(selector, waiting, told)
    finally:
        for worker in workers:
            worker.end()


def _attend(selector: selectors.BaseSelector, waiting: "deque[Task]", told: Told) -> None:
    """Give the tasks that wait to workers that are free, until all are done."""
    while selector.get_map():
        ready = selector.select(HEARTBEAT_S)
        if not ready:
            told(0)
        for key, _ in ready:
            worker: _Worker = key.data
            if not worker.hear(told):
                continue
            if waiting:
                worker.give(waiting.popleft())
            else:
                selector.unregister(key.fileobj)


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
                raise InputError([Problem(**problem) for problem in message["problems"]])
            if "errno" in message:
                raise OSError(message["errno"], message["strerror"])
            told(message.get("rows", 0))
        return any("done" in message for message in messages)

    def _lost(self) -> InputError:
        code = self._process.wait()
        hint = "If the machine ran out of memory, prepare on fewer cores: taskset -c 0 dlrmx data prepare RECIPE"
        return InputError(f"a process that prepares data ended with code {code}", hint=hint)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._input.close()
        self.output.close()
