"""A draft as a recipe: it loads, says what was found, and marks what to look at."""

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings

from criteo_files import random_rows, row, write
from dlrmx.data.draft import CRITEO_DENSE, CRITEO_FEATURES, draft
from dlrmx.data.draft_text import recipe_text
from dlrmx.data.prepare import prepare
from dlrmx.data.survey import survey
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.schema import Recipe, Tabular

COLOURS = ["red", "green", "blue", "red"] * 25
COINS = [0, 1, 0, 0] * 25


def written(folder: Path, columns: dict[str, Any], name: str = "clicks.parquet") -> tuple[str, Recipe]:
    """The recipe drafted from a table, as text and loaded."""
    parquet.write_table(pa.table(columns), folder / name)
    found = survey([str(folder / name)])
    text = recipe_text(found, draft(found), [name])
    (folder / "clicks.yaml").write_text(text)
    return text, load_recipe(folder / "clicks.yaml").recipe


def test_it_loads_and_says_what_was_found(tmp_path: Path) -> None:
    columns = {
        "click": COINS,
        "price": [n + 0.25 for n in range(100)],
        "colour": COLOURS,
        "hour": [n % 24 for n in range(100)],
        "tags": [["a", "b"], ["c"]] * 50,
        "when": [f"w{n}" for n in range(100)],
    }
    text, recipe = written(tmp_path, columns)
    assert isinstance(recipe.data, Tabular)
    assert recipe.data.files == [str(tmp_path / "clicks.parquet")]
    assert recipe.data.label.column == "click"
    assert (recipe.dense["price"].transform, recipe.dense["price"].mean) == ("standardize", 49.75)
    assert list(recipe.features) == ["colour", "hour", "tags"]
    assert {name: table.rows for name, table in recipe.tables.items()} == {"colour": 5, "hour": 26, "tags": 5}
    lines = text.splitlines()
    assert "100 rows, all that 1 file holds" in lines[0]
    assert "  label: {column: click} # 25.00% positive" in lines
    assert "  tags: {ids: vocabulary} # 3 values, 1.5 to a row, at most 2" in lines
    assert "#   when: an id of rows: no value comes twice" in lines
    assert [line for line in lines if "# look: " in line] == [
        "  hour: {ids: vocabulary} # look: a code? As an amount it belongs under `dense`: 0 to 23 (24 values)"
    ]
    assert "#   look      1 line marked so: guesses about what only you know" in lines


def test_without_dense_columns_there_is_a_model_for_one_feature(tmp_path: Path) -> None:
    _, recipe = written(tmp_path, {"label": COINS, "colour": COLOURS})
    assert (recipe.model.kind, recipe.dense) == ("dcnv2", {})


def test_a_format_that_names_do_not_tell_and_words_for_missing_are_written_down(tmp_path: Path) -> None:
    (tmp_path / "day_0").write_text("label\tn\tcolour\n" + "1\t7.5\tred\n0\tNULL\tblue\n0\t2.5\tred\n" * 9)
    found = survey([str(tmp_path / "day_0")])
    (tmp_path / "r.yaml").write_text(recipe_text(found, draft(found), ["day_0"]))
    data = load_recipe(tmp_path / "r.yaml").recipe.data
    assert isinstance(data, Tabular)
    assert (data.format, data.missing) == ("tsv", ["", "NA", "NULL"])


def test_bad_rows_of_the_sample_are_to_be_looked_at_and_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,colour\n" + "1,red\n0,blue\n" * 9 + "1\n")
    found = survey([str(tmp_path / "a.csv")])
    text = recipe_text(found, draft(found), ["a.csv"])
    (tmp_path / "r.yaml").write_text(text)
    assert f"bad_rows: skip # look: 1 sampled rows are bad (the first: {tmp_path}/a.csv:20: 1 fields, not 2)" in text
    prepare(load_recipe(tmp_path / "r.yaml").recipe, tmp_path)


@pytest.mark.parametrize(("rows", "batch"), [(100, 32), (30_000, 128)])
def test_the_batch_grows_with_the_data(tmp_path: Path, rows: int, batch: int) -> None:
    _, recipe = written(tmp_path, {"label": COINS * (rows // 100), "colour": COLOURS * (rows // 100)})
    assert recipe.train.batch == batch


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)


@given(st.lists(NAMES, min_size=4, max_size=4, unique=True))
@settings(max_examples=50, deadline=None)
def test_any_names_survive(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    folder = tmp_path_factory.mktemp("names")
    price, colour, always, tags = names
    columns = {
        "label": COINS,
        price: [n + 0.5 for n in range(100)],
        colour: COLOURS,
        always: [1] * 100,
        tags: [["x", "y"]] * 100,
    }
    if len(columns) < 5:
        return
    _, recipe = written(folder, columns)
    assert isinstance(recipe.data, Tabular)
    blank = {name for name in names if not name.strip()}
    assert set(recipe.dense) == {price} - blank
    assert {feature.column for feature in recipe.features.values()} == {colour, tags} - blank


@pytest.mark.parametrize("header", [True, False])
def test_criteos_files_are_read_by_their_own_reader(tmp_path: Path, header: bool) -> None:
    names = [b"\t".join(name.encode() for name in ("label", *CRITEO_DENSE, *CRITEO_FEATURES))] if header else []
    write(tmp_path / "day_0", *names, *random_rows(200))
    found = survey([str(tmp_path / "day_0")])
    text = recipe_text(found, draft(found), ["day_0"])
    assert "# look:" not in text
    assert "#   look      nothing had to be guessed that only you know" in text.splitlines()
    (tmp_path / "r.yaml").write_text(text)
    recipe = load_recipe(tmp_path / "r.yaml").recipe
    assert recipe.data.kind == "criteo"
    assert [list(recipe.dense), list(recipe.features)] == [list(CRITEO_DENSE), list(CRITEO_FEATURES)]
    prepare(recipe, tmp_path)


def test_criteos_columns_with_a_rating_are_a_table(tmp_path: Path) -> None:
    names = "\t".join(["label", *CRITEO_DENSE, *CRITEO_FEATURES]).encode()
    write(tmp_path / "a.tsv", names, *(row(str(n % 5 + 1)) for n in range(50)))
    found = survey([str(tmp_path / "a.tsv")])
    assert (draft(found).kind, draft(found).label.threshold) == ("tabular", 3)
