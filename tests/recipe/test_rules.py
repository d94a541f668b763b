"""Rules over several settings: each has a recipe that breaks it, and reads only the sections that it names."""

from pathlib import Path
from typing import Any

import pytest

from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.rules import RULES, Rule
from dlrmx.recipe.schema import Recipe


def test_both_examples_are_valid(problems: Any, example: Path, tabular: Path) -> None:
    assert problems(path=example) == []
    assert problems(path=tabular) == []


@pytest.mark.parametrize(
    ("overrides", "key", "message"),
    [
        (["features.item.table=itme"], "features.item.table", 'there is no table "itme" / did you mean item?'),
        (["tables.spare={rows: 5}"], "tables.spare", "no feature uses this table"),
        (["model.top=[32, 2]"], "model.top", "must end in 1, the logit, not in 2"),
        (
            ["model.bottom=[32, 8]"],
            "model.bottom",
            "must end in the tables' dim for dot products: 16, not 8 / write [32, 16]",
        ),
        (["tables.user.dim=8"], "model.interaction", "need one embedding dim; the tables have item 16, user 8"),
        (["data.split={validation: 0.5, test: 0.5}"], "data.split", "leave no rows to train on"),
        (["data.split={by: fraction, validation: 0.5, test: 0.5}"], "data.split", "leave no rows to train on"),
        (["data.split={by: files, validation: [a], test: [a]}"], "data.split.by", "no files to split by"),
        (["data.split={by: files, validation: [], test: 0.1}"], "data.split", "`test` must be a list of files"),
        (["data.split.test=[a.csv]"], "data.split", "by hash, so `test` must be a fraction of the rows"),
        (["data.split.test=0"], "train.evaluate.at_end", "data.split.test is 0 / write at_end: null"),
        (["data.split.validation=0"], "train.evaluate.on", "data.split.validation is 0"),
        (["data.pooling.histroy={mean: 1, max: 2}"], "data.pooling.histroy", "did you mean history?"),
        (["data.pooling.history.max=2"], "data.pooling.history.max", "must be at least the mean (3), not 2"),
        (["data.tail=drop", "train.batch=17_000"], "train.batch", "more than the training split's 16000"),
        (["dense.price.transform=standardize", "dense.price.mean=1"], "dense.price", "standardize needs std"),
        (["sharding.tables.itme={types: [row_wise]}"], "sharding.tables.itme", "did you mean item?"),
        (["sharding.tables.item={types: [column_wise], slices: 5}"], "sharding.tables.item.slices", "at most 4 slices"),
        (
            ["exchange.dense=int8", "exchange.threshold.dense={sparsity: 0.9}"],
            "exchange.dense",
            "int8 is for whole vectors, and exchange.threshold sends single numbers",
        ),
        (
            ["exchange.backward=int4", "exchange.threshold.forward={sparsity: 0.9}"],
            "exchange.backward",
            "int4 is for whole vectors, and exchange.threshold sends single numbers",
        ),
        (["train.evaluate.every=null"], "checkpoint.best", "train.evaluate.every is not set"),
        (["train.evaluate.on=test"], "checkpoint.best", "never measured: evaluations are on test"),
    ],
)
def test_each_rule_on_synthetic_data(problems: Any, overrides: list[str], key: str, message: str) -> None:
    found = [found for found in problems(*overrides) if "has no effect" not in found[1]]
    assert [found_key for found_key, _ in found] == [key]
    assert message in found[0][1]


@pytest.mark.parametrize(
    ("overrides", "key", "message"),
    [
        (["tables.user.rows=2"], "tables.user.rows", "feature user needs 3"),
        (["tables.user.rows=2", "features.user.missing=drop"], "tables.user.rows", "feature user needs 3"),
        (
            ["tables.user.rows=1", "features.user={ids: modulo, missing: drop, min_count: 1}"],
            "tables.user.rows",
            "needs 2",
        ),
        (["features.other={table: user, min_count: 6}"], "features.other.min_count", "is 6, but 5 in feature user"),
        (["features.user.column=clicked"], "features.user.column", '"clicked" is the label'),
        (["features.genres.weights=clicked"], "features.genres.weights", '"clicked" is the label'),
        (["dense.clicked={}"], "dense.clicked", '"clicked" is the label'),
        (
            ["features.genres.separator=null", "features.genres.max_ids=null"],
            "features.genres.weights",
            "add `separator`",
        ),
        (
            ["features.other={table: user, ids: hash}"],
            "features.other.ids",
            "is hash, but vocabulary in feature user of the same table",
        ),
        (
            ["sharding.tables={user: {types: [column_wise]}}", "tables.user.dim=4"],
            "sharding.tables.user.types",
            "at least 8",
        ),
    ],
)
def test_each_rule_on_files(problems: Any, tabular: Path, overrides: list[str], key: str, message: str) -> None:
    found = problems(*overrides, path=tabular)
    assert [found_key for found_key, _ in found] == [key]
    assert message in found[0][1]


@pytest.mark.parametrize(
    "overrides",
    [
        ["tables.user.dim=8", "model.interaction=cat"],
        ["tables.user.dim=8", "model={kind: dcnv2, bottom: [3], top: [1]}"],
        ["dense={}", "model.bottom=[7]"],
        ["data.split.test=0", "train.evaluate.at_end=null"],
        ["data.split.test=0", "train.evaluate.at_end=validation"],
        ["train.batch=17_000"],
        ["tables.user.rows=1"],
        ["data.pooling.history={mean: 0.5, max: 1}"],
        ["sharding.tables.item={types: [column_wise], slices: 4}"],
        ["features.user.weights=w"],
    ],
)
def test_what_is_near_a_rule_and_fine(problems: Any, overrides: list[str]) -> None:
    assert problems(*overrides) == []


def test_parquet_files_may_hold_lists(problems: Any, tabular: Path) -> None:
    lists = ["features.genres.separator=null", "data.files=[x.parquet]"]
    assert problems(*lists, path=tabular) == []


def test_two_reserved_rows_need_a_third_only_for_a_vocabulary(problems: Any, tabular: Path) -> None:
    hashed = ["defaults.feature={ids: hash}", "tables.user.rows=2"]
    assert problems(*hashed, path=tabular) == []
    assert [key for key, _ in problems(*hashed, "tables.user.rows=1", path=tabular)] == ["tables.user.rows"]
    assert problems(*hashed, "tables.user.rows=1", "features.user.missing=drop", path=tabular) == []


def test_rules_are_told_beside_broken_keys_of_other_sections(problems: Any) -> None:
    found = problems("train.batsh=1", "features.item.table=itme", "model.top=[3]", "tables.spare={rows: 5}")
    assert {key for key, _ in found} == {
        "train.batsh",
        "features.item.table",
        "tables.item",
        "model.top",
        "tables.spare",
    } - {
        "tables.item"  # history still uses it
    }


def test_rules_are_silent_about_sections_that_are_broken(problems: Any) -> None:
    assert [key for key, _ in problems("model.interactoin=cat", "model.bottom=[3]")] == ["model.interactoin"]
    assert [key for key, _ in problems("features.user.tabel=item", "model.bottom=[32, 16]")] == ["features.user.tabel"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.check.__name__)
def test_a_rule_reads_only_the_sections_it_names(rule: Rule, example: Path, tabular: Path) -> None:
    for path in (example, tabular):
        whole = load_recipe(path).recipe
        partial = Recipe.model_construct(**{name: getattr(whole, name) for name in rule.sections})
        for name in set(Recipe.model_fields) - set(rule.sections):
            partial.__dict__.pop(name, None)  # model_construct fills in defaults
        assert list(rule.check(partial)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.zipf", "1e300"),  # all probability on one id: no variance to scale
        ("data.teacher.ids", "1e300"),
        ("data.teacher.bias", "-1e300"),
        ("optimizer.dense.lr", "1e308"),  # beyond fp32
        ("optimizer.sparse.lr", "1e308"),
        ("cluster.workers_per_node", "100000"),
    ],
)
def test_numbers_that_nothing_could_use_are_refused(problems: Any, key: str, value: str) -> None:
    ((found, message),) = problems(f"{key}={value}")
    assert found == key
    assert "must be at" in message
