"""The node process with the fake worker in place of the real one; all else is the real thing."""

import os
import sys
from pathlib import Path

from dlrmx.errors import DlrmxError
from dlrmx.launch.job import JobSpec
from dlrmx.launch.node import run_node

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")

if __name__ == "__main__":
    parent = os.environ.get("DLRMX_PARENT")
    try:
        code = run_node(
            JobSpec.from_variable(os.environ["DLRMX_JOB"]),
            worker=(str(FAKE_WORKER),),
            parent=int(parent) if parent else None,
        )
    except DlrmxError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    sys.exit(code)
