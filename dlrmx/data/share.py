"""Our share of the tasks of one kind: those that no other process has taken, one after the other."""

import os
import time
from collections.abc import Sequence

from dlrmx.data import claims
from dlrmx.data.output import look_afresh
from dlrmx.data.source import Told
from dlrmx.data.work import Task, WorkFolder


class Share:
    """`tasks` in the order in which we would do them. `told`: called with the rows of each that another has done.

    `left`: tasks that are neither ours nor done. `rows_done`: rows of those that were done when we began.
    """

    def __init__(self, work: WorkFolder, held: claims.Claims, tasks: Sequence[Task], told: Told) -> None:
        self._work, self._claims, self._told = work, held, told
        self.left = [task for task in tasks if not work.is_done(task)]
        left = set(self.left)
        self.rows_done = sum(self._rows(task) for task in tasks if task not in left)
        self._looked = 0.0

    @property
    def input_bytes(self) -> int:
        """Of the files of all tasks that are left."""
        return sum(os.path.getsize(path) for path in {task.piece.path for task in self.left})

    def take(self) -> Task | None:
        """One to do; None where others do all that are left: then ask again, as often as you like.

        Raises InputError where another found that the data is bad.
        """
        if time.monotonic() - self._looked < claims.WAIT_S:
            return None
        self._work.refuse_failed()
        for task in list(self.left):
            if self._work.is_done(task):
                self.left.remove(task)
                self._told(self._rows(task))
            elif self._claims.take(task.name):
                self.left.remove(task)
                return task
        if self.left:
            self._looked = time.monotonic()
            look_afresh(self._work.path)
        return None

    def _rows(self, task: Task) -> int:
        return self._work.extent(task.number).rows if self._work.result("extent", task.number).exists() else 0
