"""train and resume with a node process that plays a script."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted import EVALUATION, STEP

from dlrmx.runs.layout import RunPaths

Play = Callable[..., str]


def test_a_run_that_goes_well_prints_its_result(dlrmx, recipe_file: Path, fake_node: Play) -> None:
    python = fake_node("done", records=[STEP, EVALUATION], events=[{"event": "finished", "step": 20}])
    done = dlrmx("train", recipe_file, "-s", python)
    assert done.exit_code == 0, done.output
    print(done.stdout, done.stderr)
    assert 0
