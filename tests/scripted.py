"""A small recipe, a node process that plays a script, and what a run writes: for tests of the command line."""

import json
from collections.abc import Callable
from typing import Any

from typer.testing import Result

from dlrmx.runs.layout import RunPaths

Dlrmx = Callable[..., Result]
MakeRun = Callable[..., RunPaths]
Play = Callable[..., str]

RECIPE = """\
# Clicks on nothing: a recipe for tests.
dlrmx: 1
name: clicks
data: {kind: synthetic, rows: 2000, pooling: {tags: {mean: 2, max: 4}}}
dense: {age: {}, price: {}}
features: {item: {}, tags: {}}
tables: {item: {rows: 1000, dim: 8}, tags: {rows: 100, dim: 8}}
model: {kind: dlrm, bottom: [8], top: [8, 1]}
optimizer:
  dense: {kind: sgd, lr: 0.1}
  sparse: {kind: rowwise_adagrad, lr: 0.1}
train: {batch: 128, stop: {steps: 20}}
"""

# What a real node process does to the run's files, at the pace and with the end that the test wants.
FAKE_NODE = """\
#!{python}
import json, os, signal, sys, time
from pathlib import Path
from dlrmx.launch.job import JobSpec
from dlrmx.runs.claim import claim_attempt, hold
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import append_record
from dlrmx.runs.run_file import update_run

if sys.argv[1:] != ["-m", "dlrmx.launch.node"]:
    sys.exit(f"a node process is not started by {{sys.argv[1:]}}")
script = json.loads(Path({script!r}).read_text())
if script["end"] == "crash":
    sys.exit("no such interpreter here")
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
spec = JobSpec.from_variable(os.environ["DLRMX_JOB"])
run = RunPaths(Path(spec.root) / spec.run)
with hold(run):
    attempt = claim_attempt(run)
    update_run(run, state="running", attempt=attempt.number)
    attempt.recipe.write_text(spec.recipe)
    append_event(attempt, "phase", phase="train")
    append_event(attempt, "begin", step=0, epoch=0, row=0, total_steps=20)
    for record in script["records"]:
        append_record(attempt, **record)
    attempt.node_log(0).write_text("one\\ntwo\\nthree\\n")
    while script["end"] == "hang" or script["end"] == "stop" and not stops:
        time.sleep(0.02)
    for event in script["events"]:
        append_event(attempt, **event)
    end = script["end"]
    state, code = {{"done": ("done", 0), "stop": ("stopped", 75), "fail": ("failed", 1)}}[end]
    update_run(run, state=state, exit_code=code, reason=script.get("reason", ""))
sys.exit(code)
"""

STEP = {
    "kind": "step", "step": 10, "epoch": 0, "row": 1280, "loss": 0.5, "ne": 0.9, "auc": 0.7, "lr_dense": 0.1,
    "lr_sparse": 0.1, "samples_per_s": 12345.6, "step_ms": 10.0, "rss_bytes": 3 * 2**30,
    "bytes": {"ids": 1024, "vectors": 2048, "gradients": 2048, "dense": 4096},
}  # fmt: skip
EVALUATION = {
    "kind": "evaluation", "step": 20, "split": "test", "rows": 100, "loss": 0.41, "ne": 0.7531, "auc": 0.8125,
    "accuracy": 0.9, "calibration": 1.02, "label_mean": 0.25, "optimum_ne": 0.7421, "final": True,
}  # fmt: skip
FAILED = {"event": "failed", "rank": 1, "step": 7, "cause": "NonFinite", "message": "loss is NaN", "primary": True}
# Settings of `plan`: three processes that share 1 GiB, and table item cut by rows.
WORKERS = ("-s", "cluster.workers_per_node=3", "-s", "cluster.memory_gib=1")
ROW_WISE = ("-s", "sharding.tables.item.types=[row_wise]")


def plan_json(dlrmx: Dlrmx, *words: object) -> Any:
    done = dlrmx("plan", *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)
