"""plan: one plan, several sizes, two plan files."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripted import Dlrmx

WORKERS = ("-s", "cluster.workers_per_node=3", "-s", "cluster.memory_gib=1")
ROW_WISE = ("-s", "sharding.tables.item.types=[row_wise]")
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


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """60 tables of a terabyte, for nodes that are not here."""
    path = tmp_path / "many.yaml"
    path.write_text(MANY)
    return path


def plan_json(dlrmx: Dlrmx, *words: object) -> Any:
    done = dlrmx("plan", *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_plan_opens_with_its_verdict_then_ranks_tables_step_and_bytes(dlrmx: Dlrmx, recipe_file: Path) -> None:
    lines = dlrmx("plan", recipe_file, *WORKERS, *ROW_WISE).stdout.splitlines()
    assert lines[0] == "fits     on 3 processes of 1 node"
    # A third of 1 GiB for each rank, less 15%: 290.13 MiB.
    assert lines[1].endswith("on the fullest rank, which may fill 290 MiB")
    assert [line.split()[0] for line in lines[5:9]] == ["rank", "0", "1", "2"]
    header = next(index for index, line in enumerate(lines) if line.startswith("table "))
    assert lines[header].split() == ["table", "rows", "dim", "dtype", "type", "tier", "ranks", "bytes"]
    assert lines[header + 1].split()[:7] == ["item", "1,000", "8", "fp32", "row_wise", "hbm", "all"]
    assert lines[header + 2] == "    rows from 0, 333, 666"
    assert [line.split()[0] for line in lines if line.startswith(("stage", "step  ", "bytes per", "costliest"))] == [
        "step",
        "stage",
        "step",
        "bytes",
        "costliest",
    ]


def test_the_numbers_of_a_plan_agree(dlrmx: Dlrmx, recipe_file: Path) -> None:
    found = plan_json(dlrmx, recipe_file, *WORKERS, *ROW_WISE)
    assert len(found["ranks"]) == 3
    # A row-wise table of 1,000 x 8: 334 rows at most on a rank, with a sum each.
    held = [rank["weights_bytes"] + rank["state_bytes"] for rank in found["ranks"]]
    assert max(held) >= 333 * 9 * 4
    assert found["step_s"] == pytest.approx(sum(found["exposed"].values()))
    assert found["samples_per_s"] == pytest.approx(128 / found["step_s"])
    # 2,000 rows, 90% of them for training.
    assert found["hours_per_epoch"] == pytest.approx(1800 / found["samples_per_s"] / 3600)
    assert set(found["table_costs"]) == {"item", "tags"}


def test_a_plan_file_can_be_used_again(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    first = plan_json(dlrmx, recipe_file, *WORKERS, *ROW_WISE, "--out", "p.json")
    assert json.loads((tmp_path / "p.json").read_text()) == first["plan"]
    again = plan_json(dlrmx, recipe_file, *WORKERS, "-s", "sharding.plan=p.json")
    assert again["plan"]["tables"] == first["plan"]["tables"]
    assert again["step_s"] == pytest.approx(first["step_s"])


def test_a_plan_file_that_may_have_been_edited_is_not_overwritten(
    dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "p.json").write_text("edited")
    done = dlrmx("plan", recipe_file, "--out", "p.json")
    assert done.exit_code == 2
    assert "p.json exists already" in done.stderr
    assert (tmp_path / "p.json").read_text() == "edited"


def test_a_plan_that_cannot_be_written_is_one_line(dlrmx: Dlrmx, recipe_file: Path) -> None:
    done = dlrmx("plan", recipe_file, "--out", "no/such/folder/p.json")
    assert done.exit_code == 1
    assert "no/such/folder/p.json: No such file or directory" in done.stderr


def test_of_many_ranks_and_tables_some_are_shown_in_80_columns(dlrmx: Dlrmx, many: Path) -> None:
    text = dlrmx("plan", many, "--cluster", "zionex", "--nodes", 16).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "on 128 GPUs of 16 nodes" in text
    assert "the 20 costliest of 60 tables" in text
    assert [word for word in ("most memory", "median memory", "least memory", "most time") if word not in text] == []
    found = plan_json(dlrmx, many, "--cluster", "zionex", "--nodes", 16)
    assert len(found["table_costs"]) == 60
    memory = [rank["weights_bytes"] + rank["state_bytes"] for rank in found["ranks"]]
    assert sum(memory) >= 2_000_000_000 * 128 * 4


def test_several_sizes_give_a_table_with_ways_out(dlrmx: Dlrmx, many: Path) -> None:
    # The host's memory is left out, so that a terabyte of fp32 needs some 26 GPUs.
    here = ("--cluster", "zionex", "-s", "cluster.memory_gib=0.001")
    found = plan_json(dlrmx, many, *here, "--nodes", "1,8,16")
    assert [(row["nodes"], row["ranks"], row["fits"]) for row in found["sizes"]] == [
        (1, 8, False),
        (8, 64, True),
        (16, 128, True),
    ]
    small, first, second = found["sizes"]
    assert small["ways_out"]
    assert first["efficiency"] == 1
    assert second["efficiency"] == pytest.approx(second["samples_per_s"] / first["samples_per_s"] / 2)
    text = dlrmx("plan", many, *here, "--nodes", "1,8,16").stdout
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[:3] for line in lines[1:4]] == [["1", "8", "no"], ["8", "64", "yes"], ["16", "128", "yes"]]
    assert any(line.startswith("1 node: ") for line in lines)
    assert any(line.startswith("    - ") for line in lines)


def test_each_size_is_told_before_it_is_planned(dlrmx: Dlrmx, many: Path) -> None:
    done = dlrmx("plan", many, "--cluster", "zionex", "--nodes", "8,16")
    assert [line for line in done.stderr.splitlines() if line.startswith("plan ")] == [
        "plan 1 of 2: nodes 8",
        "plan 2 of 2: nodes 16",
    ]
    assert done.stdout.splitlines()[0].split()[-1] == "epoch"


def test_data_of_unknown_length_have_no_column_for_an_epoch(dlrmx: Dlrmx) -> None:
    done = dlrmx("plan", "mlperf_dcnv2", "--cluster", "zionex", "--nodes", "8,16")
    assert done.stdout.splitlines()[0].split()[-1] == "efficiency"


def test_two_plan_files_stand_side_by_side(dlrmx: Dlrmx, recipe_file: Path) -> None:
    plan_json(dlrmx, recipe_file, *WORKERS, *ROW_WISE, "--out", "cut.json")
    whole = ("-s", "sharding.tables.item.types=[table_wise]")
    second = plan_json(dlrmx, recipe_file, *WORKERS, *whole, "--out", "whole.json")
    text = dlrmx("plan", recipe_file, *WORKERS, "--compare", "cut.json", "whole.json").stdout
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["cut.json", "whole.json"]
    assert any(
        line.split()[:8] == ["item", "row_wise", "hbm", "on", "all", "table_wise", "hbm", "on"] for line in lines
    )
    both = plan_json(dlrmx, recipe_file, *WORKERS, "--compare", "cut.json", "whole.json")["plans"]
    assert [entry["file"] for entry in both] == ["cut.json", "whole.json"]
    assert both[1]["step_s"] == pytest.approx(second["step_s"])
    same = dlrmx("plan", recipe_file, *WORKERS, "--compare", "cut.json", "cut.json").stdout
    assert "all 2 tables are cut alike" in same


def test_a_file_that_is_no_plan_of_the_recipe_is_named(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    done = dlrmx("plan", recipe_file, "--compare", "bad.json", "bad.json")
    assert done.exit_code == 2
    assert "bad.json: not a plan file" in done.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--nodes", "1,two"), "no list of whole numbers"),
        (("--nodes", "0"), "no list of whole numbers"),
        (("--nodes", "1,2", "--out", "p.json"), "one question each"),
        (("--compare", "a.json", "b.json", "--out", "p.json"), "one question each"),
    ],
)
def test_questions_that_do_not_go_together(dlrmx: Dlrmx, recipe_file: Path, words: tuple[str, ...], what: str) -> None:
    done = dlrmx("plan", recipe_file, *words)
    assert done.exit_code == 2
    assert what in done.stderr


def test_a_plan_file_that_does_not_fit_says_so_first(dlrmx: Dlrmx, recipe_file: Path) -> None:
    plan_json(dlrmx, recipe_file, *WORKERS, "--out", "p.json")
    tight = ("-s", "cluster.workers_per_node=3", "-s", "cluster.memory_gib=0.0001", "-s", "sharding.plan=p.json")
    assert dlrmx("plan", recipe_file, *tight).stdout.startswith("FITS NOT  on 3 processes of 1 node")


def test_a_step_too_short_for_the_prediction_to_cover_is_said(dlrmx: Dlrmx, recipe_file: Path, many: Path) -> None:
    said = "so short a step takes longer: Python's time between operations is not counted"
    assert said in dlrmx("plan", recipe_file).stdout.splitlines()
    assert said not in dlrmx("plan", many, "--cluster", "zionex", "--nodes", "16", "-s", "train.batch=1048576").stdout
    assert (
        "The shortest steps take longer" in dlrmx("plan", recipe_file, "--cluster", "zionex", "--nodes", "1,2").stdout
    )
