"""Jobs whose workers are tests/launch/fake_worker.py: the real launcher, node process and torch.distributed.run."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlrmx import __version__
from dlrmx.launch.job import JobSpec
from dlrmx.recipe.load import dump_recipe, load_recipe
from dlrmx.recipe.profiles import Profile
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.lines import Line

FAKE_NODE = Path(__file__).parent / "launch" / "fake_node.py"
RECIPE = """
dlrmx: 1
name: tiny
data: {kind: synthetic, rows: 200}
dense: {x: {}}
features: {a: {}}
tables: {a: {rows: 10, dim: 4}}
model: {kind: dlrm, bottom: [8, 4], top: [8, 1]}
optimizer: {dense: {kind: sgd, lr: 0.1}, sparse: {kind: sgd, lr: 0.1}}
train: {batch: 16, stop: {steps: 3}}
"""

# Far beyond what a busy machine needs: how long it waits is no test's subject.
PATIENCE_S = 240


@dataclass(frozen=True)
class FakeJob:
    """A job, and the run that it drives. `fake`: what the workers do (see fake_worker.py)."""

    spec: JobSpec
    profile: Profile

    @property
    def run(self) -> RunPaths:
        return RunPaths(Path(self.spec.root) / self.spec.run)

    def again(self, fake: dict[str, Any] | None = None, **changes: Any) -> "FakeJob":
        """The same job with other workers or other fields."""
        profile = self.profile if fake is None else self.profile.model_copy(update={"env": {"FAKE": json.dumps(fake)}})
        return FakeJob(replace(self.spec, profile=profile.model_dump(mode="json"), **changes), profile)

    @contextmanager
    def start(self) -> Iterator["subprocess.Popen[str]"]:
        """The node process, as a child of ours; killed at the end, should it still run."""
        env = {**os.environ, "DLRMX_JOB": self.spec.to_variable()}
        with subprocess.Popen([sys.executable, str(FAKE_NODE)], env=env, text=True, stderr=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()

    def execute(self) -> tuple[int, str]:
        """Run the node process to its end: exit code and stderr."""
        with self.start() as process:
            stderr = process.communicate()[1]
        return process.returncode, stderr

    def events(self, attempt: int, *names: str) -> list[Line]:
        return read_events(self.run.attempt(attempt), *names)


def make_job(root: Path, fake: dict[str, Any], *, run: str = "tiny-1", settings: Sequence[str] = ()) -> FakeJob:
    """A job in <root>/runs that ends beyond what any fake worker does; `settings` as for `-s`.

    Its profile's python starts the fake node process.
    """
    root.mkdir(exist_ok=True)
    (root / "tiny.yaml").write_text(RECIPE)
    python = root / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE_NODE}"\n')
    python.chmod(0o755)
    given = ["train.stop.steps=200000", f"cluster.root={root}/runs", f"cluster.python={python}", *settings]
    loaded = load_recipe(root / "tiny.yaml", given)
    recipe = dump_recipe(loaded.recipe)
    spec = JobSpec(dlrmx=__version__, run=run, root=loaded.profile.root, recipe=recipe, profile={})
    return FakeJob(spec, loaded.profile).again(fake)


def wait_for(what: Callable[[], Any], *, seconds: float = PATIENCE_S) -> Any:
    """The first true value of `what`; fails after so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := what():
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds:g} s in vain")
