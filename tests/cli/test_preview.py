"""check."""

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


def test_what_the_files_lack_is_told_with_the_recipes_line_and_key(dlrmx: Dlrmx, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("clicked,city\n1,a\n0,b\n")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "dlrmx: 1\ndata: {kind: tabular, files: [rows.csv], label: {column: klicked}}\n"
        "features:\n  town: {}\ntables: {town: {rows: 10, dim: 8}}\nmodel: {kind: dcnv2, bottom: [8], top: [8, 1]}\n"
        "optimizer: {dense: {kind: sgd, lr: 0.1}, sparse: {kind: sgd, lr: 0.1}}\ntrain: {batch: 2, stop: {epochs: 1}}\n"
    )
    done = dlrmx("check", recipe, "--data")
    assert done.exit_code == 2
    assert f"{recipe}:2: data.label.column: no column klicked in {tmp_path}/rows.csv" in done.stderr
    assert f"{recipe}:4: features.town: no column town in {tmp_path}/rows.csv" in done.stderr
    away = dlrmx("check", recipe, "--data", "-s", "data.files=[gone.csv]")
    assert "-s: data.files: no file matches" in away.stderr
    assert "--nodes: cluster.nodes: must be 1" in dlrmx("check", recipe, "--nodes", "2").stderr
