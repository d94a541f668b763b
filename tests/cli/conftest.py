"""Runs, a recipe and a scripted node process: the fake stands at the process border, all else is real."""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.registry import register
from dlrmx.runs.run_file import update_run
from scripted import FAKE_NODE, RECIPE, Dlrmx, MakeRun, Play

MANY = """\
dlrmx: 1
data: {kind: synthetic, rows: 1_000_000}
dense: {x: {}}
generate:
  t: {tables: 60, rows: 2_000_000_000, dim: {min: 64, max: 256, mean: 128}, pooling: {mean: 20, spread: 0.5}}
model: {kind: dlrm, bottom: [8], top: [8, 1], interaction: cat}
optimizer: {dense: {kind: sgd, lr: 0.1}, sparse: {kind: rowwise_adagrad, lr: 0.1}}
train: {batch: 4096, stop: {steps: 1}}
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own shell folder, registry and profiles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """60 tables of a terabyte, for nodes that are not here."""
    path = tmp_path / "many.yaml"
    path.write_text(MANY)
    return path


@pytest.fixture
def dlrmx() -> Dlrmx:
    """Runs a command in this process: `dlrmx("check", "quickstart").exit_code`."""
    from dlrmx_cli.main import app

    def run(*words: object) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words])

    return run


@pytest.fixture
def fake_node(tmp_path: Path) -> Play:
    """Sets what the node process will do; gives the `-s` that makes it the interpreter of the job."""
    script, program = tmp_path / "script.json", tmp_path / "fake-python"
    program.write_text(FAKE_NODE.format(python=sys.executable, script=str(script)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def play(end: str, *, records: list[Any] = [], events: list[Any] = [], reason: str = "") -> str:  # noqa: B006
        script.write_text(json.dumps({"end": end, "records": records, "events": events, "reason": reason}))
        return f"cluster.python={program}"

    return play


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run with one attempt in ./runs, in the given state, with the given events."""

    def make(state: str = "done", *events: dict[str, Any], name: str | None = None, **fields: Any) -> RunPaths:
        run = create_run(tmp_path / "runs", "clicks", name, "0" * 12)
        attempt = claim_attempt(run)
        attempt.recipe.write_text(RECIPE)
        append_event(attempt, "begin", step=0, epoch=0, row=0, total_steps=20)
        for event in events:
            append_event(attempt, **event)
        update_run(run, state=state, attempt=1, **fields)
        register(run)
        return run

    return make


@pytest.fixture
def environment() -> dict[str, str]:
    """For commands in processes of their own: this test's folders, no terminal."""
    return {**os.environ, "TERM": "dumb", "COLUMNS": "100"}
