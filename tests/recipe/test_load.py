"""A recipe from file to value and back: names, paths, origins, round trips; and never a traceback."""

import glob
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlrmx.errors import InputError, Problem
from dlrmx.recipe.load import dump_recipe, find_recipe, load_recipe, read_frozen
from dlrmx.recipe.schema import Recipe

HERE = Path(__file__).parent
EXAMPLES = [HERE / "example.yaml", HERE / "tabular.yaml"]


def test_defaults_are_merged(example: Path) -> None:
    recipe = load_recipe(example).recipe
    assert (recipe.features["history"].table, recipe.features["user"].column) == ("item", "user")
    assert [table.dim for table in recipe.tables.values()] == [16, 16]


@pytest.mark.parametrize(
    ("stem", "name"),
    [("quickstart", "quickstart"), ("movielens_100k", "movielens-100k"), ("My Run!", "my-run"), ("2024", "recipe-2024"),
     ("___", "recipe"), ("x" * 99, "x" * 31)],
)  # fmt: skip
def test_the_name_defaults_to_the_files(tmp_path: Path, example: Path, stem: str, name: str) -> None:
    path = tmp_path / f"{stem}.yaml"
    path.write_text(example.read_text().replace("name: example\n", ""))
    assert load_recipe(path).recipe.name == name


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path: Path, tabular: Path) -> None:
    (tmp_path / "a [b]*" / "day_1").mkdir(parents=True)
    (tmp_path / "a b" / "day_1").mkdir(parents=True)
    for folder in ("a [b]*", "a b"):
        (tmp_path / folder / "day_1" / "x.csv").touch()
    path = tmp_path / "a [b]*" / "tabular.yaml"
    path.write_text(tabular.read_text())
    (pattern,) = load_recipe(path).recipe.data.files  # type: ignore[union-attr]
    assert glob.glob(pattern) == [str(tmp_path / "a [b]*" / "day_1" / "x.csv")]


def test_paths_begin_at_the_recipe_and_those_of_s_at_the_shell(
    tmp_path: Path, tabular: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/x")
    assert load_recipe(tabular).recipe.data.files == [str(HERE / "day_*/*.csv")]  # type: ignore[union-attr]
    given = load_recipe(tabular, ["data.files=[../a.csv, /b/c.csv, ~/d.csv]"]).recipe
    assert given.data.files == [str(tmp_path.parent / "a.csv"), "/b/c.csv", "/home/x/d.csv"]  # type: ignore[union-attr]
    plan = load_recipe(tabular, ["sharding={plan: p.json}", "train.init_from=runs/a-1"]).recipe
    assert (plan.sharding.plan, plan.train.init_from) == (str(tmp_path / "p.json"), str(tmp_path / "runs/a-1"))
    assert load_recipe(tabular, ["train.init_from=a-1"]).recipe.train.init_from == "a-1"


def test_origins(tabular: Path) -> None:
    origins = load_recipe(tabular, ["train.batch=64", "defaults.feature.min_count=6"]).origins
    expected = {
        "train.batch": "-s",
        "train.stop.steps": f"recipe {tabular}:24",
        "features.user.ids": f"recipe {tabular}:11",
        "features.user.min_count": "-s",
        "features.genres.separator": f"recipe {tabular}:14",
        "features.user.separator": "default",
        "tables.user.rows": f"recipe {tabular}:12",
        "seed": "default",
        "cluster.root": "default",
    }
    assert {key: origins[key] for key in expected} == expected


def test_every_leaf_has_an_origin(example: Path) -> None:
    from dlrmx.recipe.tree import leaves

    loaded = load_recipe(example)
    keys = {key for key, _ in leaves(loaded.recipe) if key != "cluster"}
    assert keys <= set(loaded.origins)


def test_find_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dlrmx_recipes.shipped", lambda: {"quickstart": example})
    assert find_recipe("quickstart") == example
    with pytest.raises(InputError, match="did you mean quickstart"):
        find_recipe("quikstart")
    with pytest.raises(InputError, match="no such file"):
        find_recipe("x" * 5000)
    Path("quickstart").write_text("")
    assert find_recipe("quickstart") == Path("quickstart")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_dump_loads_back_equal(tmp_path: Path, path: Path) -> None:
    recipe = load_recipe(path).recipe
    dumped = tmp_path / "recipe.yaml"
    dumped.write_text(dump_recipe(recipe))
    assert dumped.read_text().startswith("# resolved by dlrmx ")
    assert load_recipe(dumped).recipe == recipe
    assert read_frozen(dumped) == recipe


@pytest.mark.parametrize("text", ["\x85", "1e-3", "no", "0x1", " x ", "a: b", "\u2028", "é"])
def test_text_that_looks_like_something_else_survives_a_dump(tmp_path: Path, tabular: Path, text: str) -> None:
    recipe = load_recipe(tabular).recipe
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"missing": [text]})})
    dumped = tmp_path / "recipe.yaml"
    dumped.write_text(dump_recipe(recipe))
    assert read_frozen(dumped) == recipe


def test_a_frozen_recipe_that_was_spoilt_is_an_input_error(tmp_path: Path, example: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(load_recipe(example).recipe) + "extra: 1\n")
    with pytest.raises(InputError, match=r"recipe\.yaml:\d+: extra: unknown key"):
        read_frozen(path)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
tricky = st.sampled_from(
    [
        "1e-3",
        "no",
        "null",
        "~",
        "0x1",
        "1_000",
        ".5",
        " x ",
        "a: b",
        "# c",
        "- d",
        "2024-01-01",
        "é\u2028",
        "\x85",
        "a\x85b",
    ]
)
numbers = st.floats(min_value=1e-300, max_value=1e300)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Valid values in every kind of field; features that inherit, override and equal their defaults."""
    text = texts | tricky
    feature = st.fixed_dictionaries(
        {},
        optional={
            "column": text,
            "separator": text | st.none(),
            "max_ids": st.integers(1, 2**62) | st.none(),
            "weights": text | st.none(),
            "pooling": st.sampled_from(["sum", "mean"]),
        },
    )
    names = st.from_regex(r"\A[a-zA-Z0-9_é][a-z0-9_-]{0,9}\Z")
    raw = yaml.safe_load((HERE / "tabular.yaml").read_text())
    raw["features"] = draw(st.dictionaries(names, feature | st.none(), min_size=1, max_size=4))
    raw["tables"] = {name: {"rows": draw(st.integers(1, 2**39))} for name in raw["features"]}
    raw["defaults"] = {"feature": {"table": next(iter(raw["features"])), **draw(feature)}, "table": {"dim": 8}}
    raw["dense"] = draw(
        st.dictionaries(text, st.fixed_dictionaries({"missing": numbers | st.integers(-9, 9)}), max_size=3)
    )
    raw["data"]["files"] = ["/x/" + draw(st.sampled_from(["a", "1e-3", "é"]))]
    raw["data"]["missing"] = draw(st.lists(texts | tricky | st.just(""), max_size=3))
    raw["optimizer"]["dense"]["lr"] = min(draw(numbers), 1e6)
    raw["sharding"] = {}
    return Recipe.model_validate({**raw, "cluster": draw(st.just("local") | st.just({"env": {"A": "1e5"}}))})


@given(recipe=recipes())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_recipe_survives_a_dump(tmp_path: Path, recipe: Recipe) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(recipe), newline="")
    assert read_frozen(path) == recipe


WORDS = [
    "",
    "5",
    "-1",
    "null",
    "[]",
    "{}",
    "x",
    "1e-3",
    ".nan",
    "true",
    "*a",
    "&a x",
    "[1, {a: 2}]",
    "9" * 30,
    '"',
    "\t",
    "!!int 3",
]


@given(data=st.data(), source=st.sampled_from(EXAMPLES))
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_recipe_is_valid_or_an_input_error(tmp_path: Path, data: Any, source: Path) -> None:
    lines = source.read_text().split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        line = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["delete", "repeat", "value", "character", "indent", "any"]))
        if kind == "delete":
            lines[line] = ""
        elif kind == "repeat":
            lines.insert(line, lines[line])
        elif kind == "value":
            lines[line] = lines[line].partition(":")[0] + ": " + data.draw(st.sampled_from(WORDS))
        elif kind == "character":
            place = data.draw(st.integers(0, len(lines[line])))
            lines[line] = (
                lines[line][:place] + data.draw(st.sampled_from(":-{}[]\"' \t#&*!|>%@,xé\0\x07")) + lines[line][place:]
            )
        elif kind == "indent":
            lines[line] = "  " + lines[line]
        else:
            lines[line] = data.draw(texts)
    path = tmp_path / "mutated.yaml"
    path.write_bytes("\n".join(lines).encode())
    check(path, [])


KEYS = [
    "dlrmx",
    "name",
    "data",
    "data.kind",
    "data.files",
    "data.split",
    "dense",
    "dense.price",
    "defaults",
    "defaults.feature",
    "defaults.table.dim",
    "features",
    "features.user",
    "features.user.table",
    "tables",
    "tables.user",
    "model",
    "model.kind",
    "model.bottom",
    "optimizer",
    "optimizer.schedule",
    "train",
    "train.stop",
    "train.evaluate",
    "train.init_from",
    "sharding",
    "sharding.plan",
    "sharding.tables",
    "checkpoint.every",
    "checkpoint.best",
    "log.every",
    "cluster",
    "cluster.env",
    "cluster.root",
]


@given(
    overrides=st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(WORDS) | texts), min_size=1, max_size=4),
    source=st.sampled_from(EXAMPLES),
)
@settings(max_examples=250, deadline=None)
def test_any_override_is_valid_or_an_input_error(overrides: list[tuple[str, str]], source: Path) -> None:
    check(source, [f"{key}={value}" for key, value in overrides])


def check(path: Path, overrides: list[str]) -> None:
    """Loads, or raises InputError in which each problem says something and, in the file or an option, where."""
    problems: list[Problem] = []
    try:
        loaded = load_recipe(path, overrides)
        assert loaded.recipe == Recipe.model_validate(loaded.recipe.model_dump())
    except InputError as error:
        problems = error.problems
    assert all(problem.what for problem in problems)
    assert all(problem.where for problem in problems)


def test_loading_needs_no_heavy_package() -> None:
    code = "import sys, dlrmx.recipe.load; print(sorted({'torch', 'numpy', 'pyarrow', 'torchx'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
