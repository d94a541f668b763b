"""A process that prepares pieces of data: it reads an order and then tasks, one a line, and tells of each on stdout.

It ends with its parent: at the end of its input, or when nobody reads what it tells.
"""

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlrmx.data.source import Unreadable
from dlrmx.data.work import Task, WorkFolder, open_files, run_task
from dlrmx.data.writer import Identity
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Recipe


def main() -> None:
    # Ctrl-C goes to all processes of a terminal: the parent decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = json.loads(sys.stdin.readline())
    recipe, work = Recipe.model_validate(order["recipe"]), WorkFolder(Path(order["work"]))
    identity = Identity(**order["identity"])
    try:
        source = open_files(recipe, identity)
        for line in sys.stdin:
            run_task(source, work, identity, Task.from_json(line), lambda rows: _tell(rows=rows))
            _tell(done=True)
    except InputError as error:
        unreadable = isinstance(error, Unreadable)
        _tell(problems=[asdict(problem) for problem in error.problems], unreadable=unreadable)
    except BrokenPipeError:
        # The parent is gone; nor can what is left in the buffer of stdout be written at exit.
        os._exit(1)
    except OSError as error:
        _tell(errno=error.errno, strerror=error.strerror)


def _tell(**message: Any) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
