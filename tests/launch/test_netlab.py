"""Two hosts with a link that is cut in mid-training: no connection is closed, everything just falls silent."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dlrmx import __version__
from dlrmx.launch.job import JobSpec
from dlrmx.launch.link import SILENCE_S
from dlrmx.recipe.load import dump_recipe, load_recipe
from dlrmx.runs.events import read_events
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.state import run_state
from fake_job import PATIENCE_S, RECIPE, wait_for

ADDRESS = "10.78.0.1"  # of netlab's host 0


@pytest.fixture
def netlab(shared_dir: Path) -> Iterator[Path]:
    tool = shared_dir / "tools" / "netlab"
    if not tool.is_file() or os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("needs root, ip and netlab")
    subprocess.run([tool, "up", "2"], check=True, capture_output=True)
    yield tool
    subprocess.run([tool, "down"], check=False, capture_output=True)


@contextmanager
def on_both(netlab: Path, job: JobSpec, port: int) -> "Iterator[list[subprocess.Popen[bytes]]]":
    """The job's node processes, one on each host. gloo is not told its interface: the node process finds it."""
    with ExitStack() as stack:
        processes = []
        for node in (0, 1):
            place = {"DLRMX_RENDEZVOUS": f"{ADDRESS}:{port}", "DLRMX_NODE_RANK": str(node)}
            env = {**os.environ, "DLRMX_JOB": job.to_variable(), **place}
            words: list[str | Path] = [
                netlab,
                "run",
                str(node),
                "env",
                "-u",
                "GLOO_SOCKET_IFNAME",
                sys.executable,
                "-m",
                "dlrmx.launch.node",
            ]
            process = stack.enter_context(subprocess.Popen(words, env=env))
            stack.callback(process.kill)
            processes.append(process)
        yield processes


@pytest.mark.slow
def test_a_link_that_is_cut_ends_the_attempt_and_once_healed_it_goes_on(netlab: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(RECIPE.replace("rows: 200", "rows: 20_000").replace("batch: 16", "batch: 64"))
    settings = [f"cluster.root={tmp_path}/runs", "cluster.workers_per_node=1", "checkpoint.every.steps=20"]
    loaded = load_recipe(tmp_path / "tiny.yaml", [*settings, "train.stop.steps=100000"])
    profile = loaded.profile.model_copy(update={"nodes": 2}).model_dump(mode="json")
    job = JobSpec(__version__, "tiny-1", loaded.profile.root, dump_recipe(loaded.recipe), profile)
    run = RunPaths(tmp_path / "runs" / "tiny-1")
    with on_both(netlab, job, 21_000) as processes:
        wait_for(lambda: run.attempts() and read_events(run.attempt(1), "saved"))
        subprocess.run([netlab, "cut", "1"], check=True)
        cut = time.monotonic()
        assert [process.wait(PATIENCE_S) for process in processes] == [75, 75]
        assert time.monotonic() - cut < SILENCE_S + 60
    state = run_state(run)
    assert (state.state, state.ended) == ("created", False)
    lost = [event for event in read_events(run.attempt(1), "failed") if event["primary"]]
    assert [event["cause"] for event in lost] == ["lost"]
    assert "node 1 of 2 was lost" in lost[0]["message"]
    subprocess.run([netlab, "heal", "1"], check=True)
    assert state.checkpoint
    more = load_recipe(tmp_path / "tiny.yaml", [*settings, f"train.stop.steps={state.checkpoint + 5}"])
    with on_both(
        netlab, JobSpec(**{**json.loads(job.to_json()), "recipe": dump_recipe(more.recipe)}), 21_100
    ) as processes:
        assert [process.wait(PATIENCE_S) for process in processes] == [0, 0]
    assert read_events(run.attempt(2), "begin")[0]["step"] == state.checkpoint
