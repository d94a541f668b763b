"""Every test here has a state directory of its own, so that no run of the person who tests is seen or hidden."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrmx.runs.claim import is_live
from dlrmx.runs.layout import RunPaths


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _no_strays(tmp_path: Path) -> Iterator[None]:
    """A test that fails leaves no job behind: killing the node process kills all of it."""
    yield
    for lock in tmp_path.glob("*/*/lock"):
        if is_live(RunPaths(lock.parent)):
            os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
