"""dlrmx init: where the draft goes, how it names the files, what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.schema import Recipe, Tabular
from scripted import Dlrmx


@pytest.fixture(autouse=True)
def clicks(tmp_path: Path) -> Path:
    """A table in this test's folder."""
    path = tmp_path / "data" / "clicks.csv"
    path.parent.mkdir()
    path.write_text("label,price,colour\n" + "1,2.5,red\n0,7.25,blue\n0,1.5,red\n" * 10)
    return path


def files(recipe: Recipe) -> list[str]:
    assert isinstance(recipe.data, Tabular)
    return recipe.data.files


def test_the_draft_goes_to_stdout_and_words_to_stderr(dlrmx: Dlrmx, tmp_path: Path) -> None:
    done = dlrmx("init", "data/clicks.csv")
    assert done.exit_code == 0
    assert "-o FILE" in done.stderr
    (tmp_path / "mine.yaml").write_text(done.stdout)
    assert dlrmx("check", "mine.yaml").exit_code == 0
    assert files(load_recipe(tmp_path / "mine.yaml").recipe) == [str(tmp_path / "data" / "clicks.csv")]


def test_a_new_file_is_written_and_none_overwritten(dlrmx: Dlrmx, tmp_path: Path) -> None:
    assert dlrmx("init", "data/clicks.csv", "-o", "mine.yaml").stdout == ""
    before = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "data" / "clicks.csv").write_text("label,colour\n1,red\n0,blue\n")
    again = dlrmx("init", "data/clicks.csv", "-o", "mine.yaml")
    assert again.exit_code == 2
    assert "mine.yaml exists already" in again.stderr
    assert (tmp_path / "mine.yaml").read_text() == before


@pytest.mark.parametrize("out", ["mine.yaml", "data/mine.yaml", "recipes/deep/mine.yaml"])
def test_files_are_named_from_the_recipes_folder(dlrmx: Dlrmx, tmp_path: Path, out: str) -> None:
    (tmp_path / out).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "data" / "more[1].csv").write_text("label,price,colour\n1,2.5,green\n")
    assert dlrmx("init", "data/cl*.csv", "data/more[1].csv", "-o", out).exit_code == 0
    recipe = load_recipe(tmp_path / out).recipe
    assert files(recipe) == [f"{tmp_path}/data/cl*.csv", f"{tmp_path}/data/more[[]1].csv"]
    assert recipe.tables["colour"].rows == 5  # red, blue and green: all files were read
    assert dlrmx("data", "prepare", out).exit_code == 0
    assert str(tmp_path) not in (tmp_path / out).read_text()


def test_what_is_no_table_is_refused(dlrmx: Dlrmx, tmp_path: Path) -> None:
    done = dlrmx("init", "data/none.csv", "-o", "mine.yaml")
    assert done.exit_code == 2
    assert "no file matches data/none.csv" in done.stderr
    assert not (tmp_path / "mine.yaml").exists()
    assert dlrmx("init").exit_code == 2


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from dlrmx_cli.main import app; app(['init', 'data/clicks.csv'], standalone_mode=False);"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
