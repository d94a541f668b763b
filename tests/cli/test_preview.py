"""check and plan."""

import json
from pathlib import Path

from scripted import Dlrmx

WORKERS = ("-s", "cluster.workers_per_node=3", "-s", "cluster.memory_gib=1")


def test_check_says_what_the_recipe_amounts_to(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    done = dlrmx("check", recipe_file, "--json", *WORKERS)
    facts = json.loads(done.stdout)
    # 1,000 + 100 rows of 8 fp32 weights and one row-wise sum each.
    assert facts["bytes"] == 1100 * (8 + 1) * 4
    assert (facts["rows"], facts["tables"], facts["features"]) == (1100, 2, 2)
    assert (facts["ranks"], facts["batch"], facts["ok"]) == (3, 128, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clicks.yaml"]  # nothing was written
    assert "clicks.yaml: ok" in dlrmx("check", recipe_file).stdout


def test_check_tells_what_may_surprise(dlrmx: Dlrmx, recipe_file: Path) -> None:
    words = ("check", recipe_file, "-s", "tables.item.dtype=fp16")
    (note,) = json.loads(dlrmx(*words, "--json").stdout)["notes"]
    assert "item" in note
    assert f"note    {note}" in dlrmx(*words).stdout.splitlines()
    assert json.loads(dlrmx("check", recipe_file, "--json").stdout)["notes"] == []


def test_without_the_files_a_laptop_still_checks_plans_and_dry_runs(dlrmx: Dlrmx, recipe_file: Path) -> None:
    there = "data={kind: tabular, files: [/no/such/*.csv], label: {column: y}}"
    note = "data.files: no file matches /no/such/*.csv on this machine"
    checked = dlrmx("check", recipe_file, "-s", there)
    assert f"note    {note}" in checked.stdout.splitlines()
    planned = dlrmx("plan", recipe_file, "-s", there)
    assert planned.exit_code == 0, planned.output
    assert note in planned.stderr
    assert dlrmx("train", recipe_file, "--dry-run", "-s", there).exit_code == 0
    assert dlrmx("train", recipe_file, "-s", there).exit_code == 2


def test_check_reads_the_plan_file(dlrmx: Dlrmx, recipe_file: Path) -> None:
    done = dlrmx("check", recipe_file, "-s", "sharding.plan=gone.json")
    assert done.exit_code == 2
    assert "gone.json: cannot read the plan" in done.stderr


def test_check_names_all_problems_at_once(dlrmx: Dlrmx, recipe_file: Path) -> None:
    recipe_file.write_text(recipe_file.read_text().replace("dim: 8}, tags", "dim: 7}, tags").replace("batch", "bacth"))
    done = dlrmx("check", recipe_file)
    assert done.exit_code == 2
    assert "clicks.yaml:7" in done.stderr
    assert "clicks.yaml:12" in done.stderr
    assert "batch" in done.stderr


def test_check_with_data_prepares_and_finds_damage(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    assert dlrmx("check", recipe_file, "--data").exit_code == 0
    (prepared,) = (tmp_path / "runs" / "prepared").iterdir()
    largest = max((path for path in prepared.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-1] ^= 1
    largest.write_bytes(content)
    done = dlrmx("check", recipe_file, "--data")
    assert done.exit_code == 2
    assert largest.name in done.stderr


def test_plan_shows_tables_and_ranks(dlrmx: Dlrmx, recipe_file: Path) -> None:
    lines = dlrmx("plan", recipe_file, *WORKERS, "-s", "sharding.tables.item.types=[row_wise]").stdout.splitlines()
    assert lines[0].split() == ["table", "rows", "dim", "dtype", "type", "ranks", "bytes"]
    assert lines[1].split()[:6] == ["item", "1,000", "8", "fp32", "row_wise", "all"]
    assert [line.split()[1] for line in lines if line.startswith("rank ")] == ["0", "1", "2"]
    # A third of 1 GiB for each rank, less 15%: 290.13 MiB.
    assert lines[-1] == "a rank may fill 290 MiB; 15% of its memory is kept free (sharding.reserve)"


def test_a_plan_file_can_be_used_again(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    types = "sharding.tables.item.types=[row_wise]"
    first = json.loads(dlrmx("plan", recipe_file, *WORKERS, "--json", "--out", "p.json", "-s", types).stdout)
    assert json.loads((tmp_path / "p.json").read_text()) == first["plan"]
    again = json.loads(dlrmx("plan", recipe_file, *WORKERS, "--json", "-s", "sharding.plan=p.json").stdout)
    assert again["plan"]["tables"] == first["plan"]["tables"]
    # A row-wise table of 1,000 x 8: 334 rows at most on a rank, with a sum each.
    item_bytes = [rank["weights_bytes"] + rank["state_bytes"] for rank in first["ranks"]]
    assert max(item_bytes) >= 333 * 9 * 4
    assert len(first["ranks"]) == 3


def test_a_plan_that_cannot_be_written_is_one_line(dlrmx: Dlrmx, recipe_file: Path) -> None:
    done = dlrmx("plan", recipe_file, "--out", "no/such/folder/p.json")
    assert done.exit_code == 1
    assert "no/such/folder/p.json: No such file or directory" in done.stderr
