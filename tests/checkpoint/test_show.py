"""`checkpoints show` and its neighbours, with torch and without."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from checkpoint_cases import make_run, save_all, save_small, whole
from dlrmx.checkpoint.show import FileLine, TensorLine, describe
from dlrmx.errors import InputError
from dlrmx.plan.shards import Plan, Strip, TablePlan

PLAN = Plan(
    world=4,
    tables={
        "user": TablePlan(1000, 64, "fp32", "row_wise", strips=(Strip(0, 1000, 0, 64, 0, 4),)),
        "item": TablePlan(10, 64, "fp32", "table_wise", strips=(Strip(0, 10, 0, 64, 2, 1),)),
        "genre": TablePlan(3, 64, "fp32", "data_parallel"),
    },
)

WITHOUT_TORCH = """
import sys
sys.modules.update(torch=None, numpy=None, safetensors=None)
from pathlib import Path
from dlrmx.checkpoint.retain import list_checkpoints, newest_good, prune
from dlrmx.checkpoint.show import describe
from dlrmx.checkpoint.verify import problems
from dlrmx.runs.layout import RunPaths
run = RunPaths(Path(sys.argv[1]))
assert [info.step for info in list_checkpoints(run)] == [100, 200]
assert newest_good(run) == (run.checkpoint(200), [])
assert problems(run.checkpoint(100)) == []
assert describe(run.checkpoint(100)).tensors[1].shape == (10, 4)
assert len(prune(run, keep=1).removed) == 1
"""


def test_describe(tmp_path: Path) -> None:
    path = save_small(make_run(tmp_path), 100, ne=0.8)
    shown = describe(path)
    assert shown.tensors == (
        TensorLine("dense_optimizer/step", (), "I64", 8, 1),
        TensorLine("table/user/weight", (10, 4), "F32", 160, 2),
    )
    file = path / "rank-0000.safetensors"
    assert shown.files == (FileLine("rank-0000.safetensors", file.stat().st_size, 3),)
    assert (shown.path, shown.step, shown.attempt, shown.format, shown.plan) == (path, 100, 1, 1, ())
    assert shown.bytes == file.stat().st_size
    assert shown.state["row"] == 3200


def test_the_plan_is_one_line_per_table(tmp_path: Path) -> None:
    state = {"plan": json.loads(PLAN.to_json()), "row": 1}
    path = save_all(make_run(tmp_path), None, 1, [whole("a", torch.ones(1))], state=state).path
    shown = describe(path)
    assert shown.plan == (
        "user: row_wise over 4 ranks",
        "item: table_wise over 1 rank",
        "genre: data_parallel over 4 ranks",
    )
    assert shown.state == {"row": 1}


def test_a_plan_of_another_version_does_not_hide_the_rest(tmp_path: Path) -> None:
    path = save_all(make_run(tmp_path), None, 1, [], state={"plan": {"version": 99}}).path
    assert describe(path).plan == ("not readable by this version (plan version 99; this dlrmx reads 2)",)


def test_no_checkpoint_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such checkpoint"):
        describe(tmp_path / "step-00000001")


def test_without_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for step in (100, 200):
        save_small(run, step)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(run.dir)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
