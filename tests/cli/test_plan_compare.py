"""plan --compare: two plan files."""

from pathlib import Path

import pytest

from scripted import ROW_WISE, WORKERS, Dlrmx, plan_json


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
