"""Tables drawn from distributions."""

import math
import statistics
from pathlib import Path

import pytest

from dlrmx.errors import InputError
from dlrmx.recipe.generate import draw
from dlrmx.recipe.load import Loaded, dump_recipe, load_recipe, read_frozen
from dlrmx.recipe.schema import Generate

RECIPE = """\
dlrmx: 1
data: {kind: synthetic, rows: 1_000_000}
dense: {x: {}}
generate:
  big: {tables: 10, parameters: 1_000_000_000, dim: {min: 4, max: 384, mean: 93}, pooling: {mean: 15, spread: 0.5}}
  tiny: {tables: 3, rows: 100, spread: 0, dim: {min: 8, max: 8, mean: 8}}
model: {kind: dlrm, bottom: [8], top: [8, 1], interaction: cat}
optimizer: {dense: {kind: sgd, lr: 0.1}, sparse: {kind: sgd, lr: 0.1}}
train: {batch: 64, stop: {steps: 1}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "drawn.yaml"
    path.write_text(RECIPE)
    return path


def problems(path: Path, *overrides: str) -> list[tuple[str, str, str]]:
    """(line, key, what) of each problem."""
    with pytest.raises(InputError) as caught:
        load_recipe(path, overrides)
    return [(problem.where.rpartition(":")[2], problem.key, problem.what) for problem in caught.value.problems]


def test_a_group_becomes_tables_with_a_feature_each(file: Path) -> None:
    recipe = load_recipe(file).recipe
    assert list(recipe.tables) == [*(f"big{k}" for k in range(10)), "tiny0", "tiny1", "tiny2"]
    assert {name: feature.table for name, feature in recipe.features.items()} == {name: name for name in recipe.tables}
    assert not recipe.generate
    # One id per sample is no pooling.
    assert recipe.data.kind == "synthetic"
    assert set(recipe.data.pooling) == {f"big{k}" for k in range(10)}


def test_totals_and_means_are_met_for_any_number_of_tables() -> None:
    for count in (1, 2, 7, 1000):
        asked = Generate.model_validate(
            {
                "tables": count,
                "parameters": 10**12,
                "spread": 2.0,
                "dim": {"min": 4, "max": 384, "mean": 93},
                "pooling": {"mean": 15, "spread": 1.0},
            }
        )
        tables, means = draw("t", asked)
        parameters = sum(table["rows"] * table["dim"] for table in tables.values())
        assert abs(parameters - 10**12) <= sum(table["dim"] for table in tables.values())
        dims = [table["dim"] for table in tables.values()]
        assert statistics.mean(dims) == pytest.approx(93, abs=2 / count + 1e-9)  # half a step of 4 in all
        assert 4 <= min(dims) <= max(dims) <= 384
        assert statistics.mean(means.values()) == pytest.approx(15, abs=1e-3)
    rows, _ = draw("t", Generate.model_validate({"tables": 7, "rows": 1009, "dim": {"min": 4, "max": 4, "mean": 4}}))
    assert sum(table["rows"] for table in rows.values()) == 1009


def test_rows_are_spread_as_asked() -> None:
    asked = {"tables": 2000, "rows": 10**12, "spread": 1.5, "dim": {"min": 4, "max": 256, "mean": 40}}
    tables, _ = draw("t", Generate.model_validate(asked))
    logarithms = [math.log(table["rows"]) for table in tables.values()]
    assert statistics.stdev(logarithms) == pytest.approx(1.5, rel=0.01)
    # Dims are dealt independently of rows.
    dims = [table["dim"] for table in tables.values()]
    assert abs(statistics.correlation(logarithms, dims)) < 0.1
    assert draw("t", Generate.model_validate({**asked, "seed": 1}))[0] != tables


def test_entries_of_the_recipe_win(file: Path) -> None:
    text = RECIPE + "tables: {big3: {rows: 5}, own: {rows: 9, dim: 12}}\nfeatures: {own: {}, big3: {pooling: mean}}\n"
    file.write_text(text + "defaults: {table: {dtype: fp16}}\n")
    recipe = load_recipe(file, ["data.pooling.big1={mean: 2, max: 3}"]).recipe
    drawn = load_recipe(file, ["tables={}", "features={}"]).recipe
    assert (recipe.tables["big3"].rows, recipe.tables["big3"].dim) == (5, drawn.tables["big3"].dim)
    assert recipe.features["big3"].pooling == "mean"
    assert recipe.tables["own"].dim == 12
    assert {table.dtype for table in recipe.tables.values()} == {"fp16"}
    assert recipe.data.kind == "synthetic"
    assert recipe.data.pooling["big1"].mean == 2


def test_what_downstream_sees_is_a_plain_recipe(file: Path, tmp_path: Path) -> None:
    loaded: Loaded = load_recipe(file)
    frozen = tmp_path / "frozen.yaml"
    frozen.write_text(dump_recipe(loaded.recipe))
    assert read_frozen(frozen) == loaded.recipe
    assert loaded.origins["tables.big0.rows"].endswith(":5")


@pytest.mark.parametrize(
    ("override", "line", "key", "what"),
    [
        ("generate.big.rows=10", "5", "generate.big", "needs either `rows` or `parameters`"),
        ("generate.tiny.rows=2", "-s", "generate.tiny.rows", "3 tables of at least one row need 3 or more"),
        ("generate.big.dim.mean=400", "-s", "generate.big.dim.mean", "must be between 4 and 384, not 400"),
        ("generate.big.parameters=9e99", "-s", "generate.big.parameters", "must be a whole number, not 9e+99"),
        ("generate.big.dim.min=6", "-s", "generate.big.dim.min", "must be a multiple of 4, not 6"),
        ("tables.big0.rows=0", "-s", "tables.big0.rows", "must be at least 1, not 0"),
        ("generate.tiny.rows=9_000_000_000_000", "6", "generate.tiny", "the largest table would have more than"),
        ("data={kind: tabular, files: [a.csv], label: {column: y}}", "4", "generate", "generated features have no"),
    ],
)
def test_what_cannot_be_drawn_is_told_by_its_line(file: Path, override: str, line: str, key: str, what: str) -> None:
    found = [entry for entry in problems(file, override) if entry[1] == key]
    assert found
    assert found[0][0] == line
    assert found[0][2].startswith(what)
