"""Bad rows and bad ids: an error, or counted with the first five by file and row; no row is lost silently."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from data_recipes import recipe, tabular, whole
from dlrmx.data.manifest import Manifest, read_manifest
from dlrmx.data.permute import restore_ids
from dlrmx.data.prepare import prepare
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Recipe
from hash_reference import text_hash

LINES = [
    b"y,item,x",
    b"1,a,1",  # 2
    b"1,b",  # 3: short
    b"2,c,3",  # 4: label
    b"0,d,4",
    b"1,e,five",  # 6: dense
    b"1,\xff,6",  # 7: not UTF-8
    b"0,g,7,8",  # 8: long
    b"y,item,x",  # 9: the header again
    b"1,h,8",
    b"0",  # 11: short, the last
]


def prepared(path: Path, policy: str, root: Path) -> tuple[Path, Manifest]:
    data = {"bad_rows": policy}
    folder = prepare(tabular([path], {"item": {}}, {"item": 50}, dense={"x": {"missing": -1.0}}, data=data), root)
    return folder, read_manifest(folder)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_bytes(b"\n".join(LINES) + b"\n")
    return tmp_path / "a.csv"


def test_skip_leaves_bad_rows_out(path: Path, tmp_path: Path) -> None:
    folder, manifest = prepared(path, "skip", tmp_path)
    batch = whole(folder)
    assert batch.labels.tolist() == [1, 0, 1]
    assert batch.dense[:, 0].tolist() == [1, 4, 8]
    assert (manifest.rows.read, manifest.rows.bad, manifest.rows.policy) == (10, 7, "skip")
    assert sum(split.rows for split in manifest.splits.values()) == manifest.rows.read - manifest.rows.bad
    assert manifest.rows.first == [
        f"{path}:3: 2 fields, not 3",
        f"{path}:4: y: the label is 2",
        f"{path}:6: x: 'five' is not a number",
        f"{path}:7: item: b'\\xff' is not UTF-8",
        f"{path}:8: 4 fields, not 3",
    ]


def test_zero_keeps_bad_rows_with_what_is_bad_as_missing(path: Path, tmp_path: Path) -> None:
    folder, manifest = prepared(path, "zero", tmp_path)
    batch = whole(folder)
    assert batch.labels.tolist() == [1, 0, 0, 0, 1, 1, 0, 0, 1, 0]
    assert batch.dense[:, 0].tolist() == [1, -1, 3, 4, -1, 6, -1, -1, 8, -1]
    plain = restore_ids(batch.bags["item"].ids, 50).tolist()
    assert [number == 0 for number in plain] == [number in (1, 5, 6, 9) for number in range(10)]
    assert (manifest.rows.read, manifest.rows.bad) == (10, 7)
    assert sum(split.rows for split in manifest.splits.values()) == 10
    assert manifest.features["item"].missing == 4


def test_what_a_row_left_out_lacks_is_not_counted(path: Path, tmp_path: Path) -> None:
    assert prepared(path, "skip", tmp_path)[1].features["item"].missing == 0


def test_to_fail_is_the_default(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.csv:3: 2 fields, not 3"):
        prepare(tabular([path], {"item": {}}, {"item": 50}), tmp_path)


@pytest.mark.parametrize("policy", ["skip", "zero"])
def test_rows_keep_their_split_whatever_is_bad_before_them(policy: str, path: Path, tmp_path: Path) -> None:
    split = {"validation": 0.2, "test": 0.2}
    good = [f"{n % 2},v{n},{n}" for n in range(500)]
    bad = [line if n % 7 else line + ",more" for n, line in enumerate(good)]
    found = {}
    for name, lines in (("good", good), ("bad", bad)):
        (tmp_path / f"{name}.csv").write_text("\n".join(["y,item,x", *lines]) + "\n")
        data = {"bad_rows": policy, "split": split}
        made = tabular([tmp_path / f"{name}.csv"], {"item": {}}, {"item": 50}, dense={"x": {}}, data=data)
        batches = {part: whole(prepare(made, tmp_path), part) for part in ("train", "validation", "test")}
        found[name] = {part: set(batch.dense[:, 0].tolist()) for part, batch in batches.items()}
    for part, numbers in found["bad"].items():
        assert numbers - {0} == {number for number in found["good"][part] if number % 7}


def test_all_rows_bad(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,item,x\n1\n1\n")
    _, manifest = prepared(tmp_path / "a.csv", "zero", tmp_path)
    assert (manifest.rows.read, manifest.rows.bad, manifest.splits["train"].rows) == (2, 2, 2)
    with pytest.raises(InputError, match="no rows to train on"):
        prepared(tmp_path / "a.csv", "skip", tmp_path)


def test_bad_rows_over_several_batches_are_told_where_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlrmx.data.tables.CSV_READ_BYTES", 256)
    lines = [f"1,v{n},{n}" if n % 50 else "1" for n in range(400)]
    (tmp_path / "a.csv").write_text("\n".join(["y,item,x", *lines]) + "\n")
    folder, manifest = prepared(tmp_path / "a.csv", "zero", tmp_path)
    assert whole(folder).dense[:, 0].tolist() == [n if n % 50 else -1 for n in range(400)]
    assert manifest.rows.bad == 8
    assert [text.split(":")[1] for text in manifest.rows.first] == ["2", "52", "102", "152", "202"]


def test_bad_values_of_parquet(tmp_path: Path) -> None:
    columns = {"y": [1, None, 0], "item": [1.0, 2.0, 2.5], "x": [math.inf, 1.0, 2.0]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    folder, manifest = prepared(tmp_path / "a.parquet", "zero", tmp_path)
    assert whole(folder).labels.tolist() == [1, 0, 0]
    assert whole(folder).dense[:, 0].tolist() == [-1, 1, 2]
    assert [text.partition(": ")[2] for text in manifest.rows.first] == [
        "row 1: x: inf is not a finite number",
        "row 2: y: the label is missing",
        "row 3: item: 2.5 is no category",
    ]


def test_bad_weights_are_left_out_with_their_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,tags,w\n1,a|b,1\n1,a|b,1|\n0,c|d,z|2\n")
    features = {"tags": {"separator": "|", "weights": "w"}}
    made = tabular([tmp_path / "a.csv"], features, {"tags": 50}, data={"bad_rows": "zero"})
    folder = prepare(made, tmp_path)
    assert whole(folder).bags["tags"].lengths.tolist() == [1, 1, 1]
    assert read_manifest(folder).rows.bad == 3


# ------------------------------------------------------------------------------------------------------------- bad ids

Kind = Literal["modulo", "identity"]
VALUES = ["0", "8", "9", "-1", str(2**31), str(2**63 - 1), str(2**64 - 1), str(2**64), "x", "1.5"]


def numbered(tmp_path: Path, kind: Kind, policy: str, *, values: Sequence[str] = VALUES, **data: Any) -> Recipe:
    """Each of the values in a row, looked up in a table of 10 rows."""
    (tmp_path / "a.csv").write_text("\n".join(["y,item", *(f"1,{value}" for value in values)]) + "\n")
    section = {
        "kind": "tabular",
        "files": [str(tmp_path / "a.csv")],
        "label": {"column": "y"},
        "split": {"validation": 0, "test": 0},
        **data,
    }
    tables = {"item": {"rows": 10, "dim": 4, "bad_ids": policy}}
    made = recipe(section, {"item": {"ids": kind}}, {"item": 10})
    return Recipe.model_validate({**made.model_dump(), "tables": tables})


def ids_of(made: Recipe, root: Path) -> list[int]:
    return [int(number) for number in restore_ids(whole(prepare(made, root)).bags["item"].ids, 10)]


def test_clamped_ids(tmp_path: Path) -> None:
    made = numbered(tmp_path, "identity", "clamp")
    assert ids_of(made, tmp_path) == [1, 9, 9, 1, 9, 9, 9, 9, 1, 1]
    facts = read_manifest(prepare(made, tmp_path)).features["item"]
    assert facts.bad == 8
    assert facts.first_bad == [f"{tmp_path / 'a.csv'}:{n + 2}: item: {VALUES[n]!r}" for n in range(2, 7)]


@pytest.mark.parametrize(
    ("kind", "expected", "bad"),
    [("identity", [1, 1, 9, 9, 9, 9], 4), ("modulo", [1, 1, 9, 1, 1 + 2**31 % 9, 1 + (2**63 - 1) % 9], 1)],
)
def test_numbers_among_numbers(kind: Kind, expected: list[int], bad: int, tmp_path: Path) -> None:
    """Where all values are 64-bit numbers they are not looked at one by one."""
    made = numbered(tmp_path, kind, "clamp", values=["-1", "0", "8", "9", str(2**31), str(2**63 - 1)])
    assert ids_of(made, tmp_path) == expected
    assert read_manifest(prepare(made, tmp_path)).features["item"].bad == bad


def test_hashed_ids(tmp_path: Path) -> None:
    found = ids_of(numbered(tmp_path, "identity", "hash"), tmp_path)
    assert found == [1, 9, *(1 + text_hash(value) % 9 for value in VALUES[2:])]


def test_remainders(tmp_path: Path) -> None:
    found = ids_of(numbered(tmp_path, "modulo", "clamp"), tmp_path)
    most = 2**64 - 1
    assert found == [1 + n % 9 for n in (0, 8, 9, 0, 2**31, 2**63 - 1, most, most, 0, 0)]


@pytest.mark.parametrize(("kind", "first"), [("identity", (4, "'9'")), ("modulo", (5, "'-1'"))])
def test_a_bad_id_fails(kind: Kind, first: tuple[int, str], tmp_path: Path) -> None:
    line, value = first
    expected = rf"a\.csv:{line}: item: {value} is no id of table item of 10 rows"
    if kind == "identity":
        expected += ": they are 0 to 8, as one row is for missing values"
    with pytest.raises(InputError, match=expected):
        prepare(numbered(tmp_path, kind, "fail"), tmp_path)


def test_a_bad_id_makes_its_row_bad(tmp_path: Path) -> None:
    assert ids_of(numbered(tmp_path, "identity", "fail", bad_rows="skip"), tmp_path) == [1, 9]
    zeroed = numbered(tmp_path, "identity", "fail", bad_rows="zero")
    assert ids_of(zeroed, tmp_path) == [1, 9, *[0] * 8]
    facts = read_manifest(prepare(zeroed, tmp_path))
    assert (facts.rows.read, facts.rows.bad, facts.features["item"].bad) == (10, 8, 0)


def test_numbers_in_parquet(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"y": [1, 0, 1], "item": [3, None, 3]}), tmp_path / "a.parquet")
    made = tabular([tmp_path / "a.parquet"], {"item": {"ids": "identity"}}, {"item": 10})
    assert ids_of(made, tmp_path) == [4, 0, 4]
