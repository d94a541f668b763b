"""How a plan is shown."""

from pathlib import Path

from scripted import ROW_WISE, WORKERS, Dlrmx, plan_json


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


def test_a_plan_file_that_does_not_fit_says_so_first(dlrmx: Dlrmx, recipe_file: Path) -> None:
    plan_json(dlrmx, recipe_file, *WORKERS, "--out", "p.json")
    tight = ("-s", "cluster.workers_per_node=3", "-s", "cluster.memory_gib=0.0001", "-s", "sharding.plan=p.json")
    assert dlrmx("plan", recipe_file, *tight).stdout.startswith("FITS NOT  on 3 processes of 1 node")


def test_what_the_prediction_does_not_cover_is_said(dlrmx: Dlrmx, recipe_file: Path, many: Path) -> None:
    said = "so short a step takes longer: Python's time between operations is not counted"
    zionex = ("--cluster", "zionex", "--nodes")
    assert said in dlrmx("plan", recipe_file, *zionex, "1").stdout.splitlines()
    assert said not in dlrmx("plan", recipe_file).stdout  # a processor's constants have it
    assert said not in dlrmx("plan", many, *zionex, "16", "-s", "train.batch=1048576").stdout
    assert "The shortest steps take longer" in dlrmx("plan", recipe_file, *zionex, "1,2").stdout
    assert "they are not counted" in dlrmx("plan", recipe_file, "-s", "exchange.chunks=4").stdout
    assert "they are not counted" not in dlrmx("plan", recipe_file).stdout
