"""plan: a plan as JSON and as a file; questions that do not go together."""

import json
from pathlib import Path

import pytest

from scripted import ROW_WISE, WORKERS, Dlrmx, plan_json


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


def test_a_plan_that_takes_long_says_so(dlrmx: Dlrmx, recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "takes longer" not in dlrmx("plan", recipe_file, *WORKERS).stderr
    monkeypatch.setattr("dlrmx_cli.plan.MANY", 5)
    assert "planning 2 tables on 3 ranks" in dlrmx("plan", recipe_file, *WORKERS).stderr
