"""What is wrong with a key, in plain words, once, with the near miss."""

from pathlib import Path
from typing import Any

import pytest

from dlrmx.recipe.explain import show


@pytest.mark.parametrize(
    ("override", "key", "message"),
    [
        ("train.batsh=1", "train.batsh", "unknown key / did you mean batch?"),
        ("train.zzz=1", "train.zzz", "unknown key / there is: batch, stop, init_from, precision, evaluate"),
        ("overlap={}", "overlap", "unknown key / there is: dlrmx, name"),
        ("train.batch=1e6", "train.batch", "must be a whole number, not 1000000.0 / write 1_000_000"),
        ("train.batch=many", "train.batch", 'must be a whole number, not "many"'),
        ('train.batch="512"', "train.batch", 'must be a whole number, not "512" / take the quotes away'),
        ("train.batch=true", "train.batch", "must be a whole number, not true"),
        ("train.batch=0", "train.batch", "must be at least 1, not 0"),
        ("train.batch=", "train.batch", "must be a whole number, not empty"),
        ("train=5", "train", "must be a mapping, not 5"),
        ("train=", "train", "must be a mapping, not empty"),
        ("data=[1]", "data", "must be a mapping, not a list"),
        ("data={rows: 5}", "data.kind", "is missing / one of synthetic, tabular"),
        ("data={kind: synthetic, rows: 5, files: [a.csv]}", "data.files", "unknown key"),
        ("data.kind=sythetic", "data.kind", '"sythetic" is not one of its values / did you mean synthetic?'),
        ("data.kind={}", "data.kind", "{} is not one of its values"),
        ("model.kind=3", "model.kind", "3 is not one of its values / there is: dlrm, dcnv2"),
        ("model.interaction=dott", "model.interaction", '"dott" is not one of its values / did you mean dot?'),
        ("model.bottom=16", "model.bottom", "must be a list, not 16 / put it in brackets: [16]"),
        ("model.bottom=[]", "model.bottom", "must not be empty"),
        ("model.bottom=[16, 0]", "model.bottom[1]", "must be at least 1, not 0"),
        ("train.stop={epoch: 1}", "train.stop", "must be {epochs: N} or {steps: N}, not epoch / did you mean epochs?"),
        ("train.stop={epochs: 1, steps: 2}", "train.stop", "must be {epochs: N} or {steps: N}, not epochs, steps"),
        ("data={kind: tabular, files: [a.csv], label: y}", "data.label", 'not "y" / write {column: y}'),
        ("train.stop={}", "train.stop", "must be {epochs: N} or {steps: N}, not {}"),
        ("train.stop=5", "train.stop", "must be {epochs: N} or {steps: N}, not 5"),
        ("train.stop={epochs: 1.5}", "train.stop.epochs", "must be a whole number, not 1.5"),
        ("train.stop={minutes: 5}", "train.stop", "must be {epochs: N} or {steps: N}, not minutes"),
        ("checkpoint.every={minutes: 0}", "checkpoint.every.minutes", "must be more than 0, not 0"),
        ("checkpoint.every={seconds: 5}", "checkpoint.every", "must be {steps: N} or {minutes: N}, not seconds"),
        ("dlrmx=2", "dlrmx", "must be 1, the recipe schema that this dlrmx reads; not 2"),
        ("name=My Run", "name", "must be lower-case letters, digits and -"),
        ("retry.stop_on_repeat=yes", "retry.stop_on_repeat", 'must be true or false, not "yes" / YAML 1.2 knows'),
        ("features.item.column=5", "features.item.column", 'must be text, not 5 / quote it: "5"'),
        ("features.item.poling=sum", "features.item.poling", "unknown key / did you mean pooling?"),
        ("features.item=5", "features.item", "must be a mapping, not 5"),
        ("features={}", "features", "must not be empty"),
        ('features={"a/b": {}}', "features.a/b", '"a/b" must be letters, digits, _ and -'),
        ("tables.user.dim=6", "tables.user.dim", "must be a multiple of 4, not 6 / the next ones are 4 and 8"),
        ("tables.user.dim=5_000_000_001", "tables.user.dim", "must be a multiple of 4"),
        ("tables.user.weight_decay=0.1", "tables.user.weight_decay", "silently ignores it"),
        ("tables.user.max_norm=1", "tables.user.max_norm", "silently ignores it"),
        ("optimizer.sparse.weight_decay=0.1", "optimizer.sparse.weight_decay", "fbgemm on CPU accepts it and silently"),
        (
            "optimizer.sparse.max_norm=1",
            "optimizer.sparse.max_norm",
            "fbgemm on CPU accepts it and silently ignores it",
        ),
        (
            "optimizer.sparse.kind=adam",
            "optimizer.sparse.kind",
            '"adam" is not supported: fbgemm on CPU has sgd, adagrad',
        ),
        ("optimizer.dense.kind=adam", "optimizer.dense.kind", '"adam" is not one of its values / did you mean adamw?'),
        ("optimizer.dense.lr=.inf", "optimizer.dense.lr", ".inf is not a finite number"),
        ("optimizer.dense={kind: sgd}", "optimizer.dense.lr", "is missing / learning rate"),
        ("tables.user={dtype: fp32}", "tables.user.rows", "is missing / capacity in rows"),
        ("checkpoint.best=auc", "checkpoint.best", 'must be a mapping, not "auc"'),
        ("sharding.tables.item.types=[rowwise]", "sharding.tables.item.types[0]", "did you mean row_wise?"),
        ("data.split.validation=1", "data.split.validation", "must be less than 1, not 1"),
        (
            "optimizer.schedule={kind: warmup_hold_decay, floor: 2}",
            "optimizer.schedule.floor",
            "must be at most 1, not 2",
        ),
    ],
)
def test_one_slip_gives_one_problem(problems: Any, override: str, key: str, message: str) -> None:
    found = problems(override)
    assert [found_key for found_key, _ in found] == [key]
    assert message in found[0][1]


def test_no_message_speaks_of_the_validator(problems: Any) -> None:
    found = problems(
        "train=x", "data.kind=5", "seed={}", "model.bottom={}", "features.item=[]", "dense=3", "log.every=", "tables=[]"
    )
    assert len(found) == 8
    for word in ("Input", "valid ", "instance", "object", "dictionary", "tag", "discriminator", "str", "int"):
        assert not [message for _, message in found if word in message.replace("string", "")]


def test_what_defaults_give_to_all_features_is_said_once(problems: Any) -> None:
    found = problems("defaults.feature={poling: sum, min_count: 0}", "defaults.table.dim=3")
    assert len(found) == 3
    assert {key for key, _ in found} == {"defaults.feature.poling", "defaults.feature.min_count", "defaults.table.dim"}


def test_a_features_own_setting_is_not_blamed_on_defaults(problems: Any) -> None:
    found = problems("defaults.feature={pooling: sum}", "features.item.pooling=max")
    assert [key for key, _ in found] == ["features.item.pooling"]


def test_the_line_of_each_problem(tmp_path: Path, example: Path, problems: Any) -> None:
    path = tmp_path / "r.yaml"
    lines = example.read_text().splitlines()
    lines[6] = "  rows: -1"
    lines[2] = "sead: 7"
    path.write_text("\n".join(lines))
    from dlrmx.errors import InputError
    from dlrmx.recipe.load import load_recipe

    with pytest.raises(InputError) as caught:
        load_recipe(path)
    assert str(caught.value) == (
        f"{path}:3: sead: unknown key\n    did you mean seed?\n{path}:7: data.rows: must be at least 1, not -1"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "empty"), (True, "true"), ({"a": 1}, "a mapping"), ([1], "a list"), ("x", '"x"'), (1.5, "1.5")],
)
def test_values_as_a_reader_knows_them(value: Any, text: str) -> None:
    assert show(value) == text


def test_long_values_are_cut() -> None:
    assert len(show("x" * 1000)) == 60
