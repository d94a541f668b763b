"""Tabular data, from files to prepared rows: every rule on ids, numbers and splits, and every kind of bad input."""

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from data_recipes import tabular, whole
from dlrmx.data import tables
from dlrmx.data.manifest import FeatureFacts, read_manifest
from dlrmx.data.permute import restore_ids
from dlrmx.data.prepare import prepare
from dlrmx.data.source import Unreadable
from dlrmx.errors import InputError
from hash_reference import image, mix, text_hash


def by_hash(text: str | None, rows: int) -> int:
    """The id of a value, or of a missing one."""
    return image(0 if text is None else 1 + text_hash(text) % (rows - 1), rows, 0)


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def write_parquet(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def bags_of(folder: Path, name: str, split: str = "train") -> list[list[int]]:
    bags = whole(folder, split).bags[name]
    ends = np.cumsum(bags.lengths)
    return [bags.ids[end - length : end].tolist() for end, length in zip(ends, bags.lengths, strict=True)]


def facts_of(folder: Path, name: str) -> FeatureFacts:
    return read_manifest(folder).features[name]


# ------------------------------------------------------------------------------------------------------------------ ids


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet"])
def test_all_formats_give_the_same_ids(name: str, tmp_path: Path) -> None:
    lines = ["y,item,price", "1,7,2.5", "0,,", "1,-12,1e3"]
    path = tmp_path / name
    if name.endswith("parquet"):
        write_parquet(path, y=[1, 0, 1], item=pa.array([7, None, -12], pa.int32()), price=[2.5, None, 1000.0])
    elif name.endswith("gz"):
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
    else:
        write(path, *(line.replace(",", "\t") if name.endswith("tsv") else line for line in lines))
    folder = prepare(tabular([path], {"item": {}}, {"item": 50}, dense={"price": {"missing": -1.0}}), tmp_path)
    batch = whole(folder)
    assert batch.labels.tolist() == [1, 0, 1]
    assert batch.dense.tolist() == [[2.5], [-1.0], [1000.0]]
    assert bags_of(folder, "item") == [[by_hash("7", 50)], [by_hash(None, 50)], [by_hash("-12", 50)]]
    assert facts_of(folder, "item").missing == 1


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["7", None, "x"]).dictionary_encode(),
        pa.array(["7", None, "x"], pa.large_string()),
        pa.array(["7", "", "x"]),
    ],
)
def test_any_kind_of_text_in_parquet(values: pa.Array, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", y=[True, False, True], item=values)
    folder = prepare(tabular([path], {"item": {}}, {"item": 50}), tmp_path)
    assert bags_of(folder, "item") == [[by_hash("7", 50)], [by_hash(None, 50)], [by_hash("x", 50)]]


def test_floats_that_are_integers_are_categories_as_integers(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", y=[1, 0], item=[3.0, math.nan])
    folder = prepare(tabular([path], {"item": {}}, {"item": 50}), tmp_path)
    assert bags_of(folder, "item") == [[by_hash("3", 50)], [by_hash(None, 50)]]


def test_a_separator_makes_bags(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,genres", "1,b|a|b", "0,", "1,c||a", "0,NA|d", "1,NA")
    features = {
        "genres": {"separator": "|"},
        "few": {"column": "genres", "separator": "|", "table": "genres", "missing": "drop", "max_ids": 2},
    }
    folder = prepare(tabular([path], features, {"genres": 1000}), tmp_path)
    a, b, c, d = (by_hash(text, 1000) for text in "abcd")
    assert bags_of(folder, "genres") == [[b, a, b], [by_hash(None, 1000)], [c, a], [d], [by_hash(None, 1000)]]
    assert bags_of(folder, "few") == [[b, a], [], [c, a], [d], []]
    facts = facts_of(folder, "few")
    assert (facts.missing, facts.mean_pooling, facts.max_pooling, facts.distinct) == (2, 1.0, 2, 4)
    assert not facts.one_hot


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.string())])
def test_lists_in_parquet_make_bags(kind: pa.DataType, tmp_path: Path) -> None:
    column = pa.array([[1, 2, 1], [], None, [3, None]]).cast(kind)
    path = write_parquet(tmp_path / "a.parquet", y=[1, 0, 1, 0], genres=column)
    folder = prepare(tabular([path], {"genres": {"missing": "drop"}}, {"genres": 50}), tmp_path)
    one, two, three = (by_hash(text, 50) for text in "123")
    assert bags_of(folder, "genres") == [[one, two, one], [], [], [three]]
    assert facts_of(folder, "genres").missing == 2


def test_weights_go_with_their_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,tags,w", "1,b||a|c,0.5|9|2|3", "0,,", "1,c,4")
    features = {"tags": {"separator": "|", "weights": "w", "max_ids": 2}}
    folder = prepare(tabular([path], features, {"tags": 50}), tmp_path)
    a, b, c = (by_hash(text, 50) for text in "abc")
    assert bags_of(folder, "tags") == [[b, a], [by_hash(None, 50)], [c]]
    weights = whole(folder).bags["tags"].weights
    assert weights is not None
    assert weights.tolist() == [0.5, 2.0, 1.0, 4.0]


def test_a_vocabulary_is_of_the_training_rows_alone(tmp_path: Path) -> None:
    rows = 400
    values = [f"v{n % 7}" for n in range(rows)]
    split = {"validation": 0.2, "test": 0.1}
    tests = [n for n in range(rows) if mix((n + 0x5D588B656C078965) % 2**64) / 2**64 < 0.3]
    for n in tests:
        values[n] = "only outside"
    path = write(tmp_path / "a.csv", "y,item", *(f"{n % 2},{value}" for n, value in enumerate(values)))
    vocabulary = tabular([path], {"item": {"ids": "vocabulary"}}, {"item": 20}, data={"split": split})
    folder = prepare(vocabulary, tmp_path)
    train = [value for n, value in enumerate(values) if n not in tests]
    order = sorted(set(train), key=lambda value: (-train.count(value), value))
    found = restore_ids(np.array(bags_of(folder, "item")).ravel(), 20).tolist()
    assert found == [2 + order.index(value) for value in train]
    outside = bags_of(folder, "item", "validation") + bags_of(folder, "item", "test")
    assert set(restore_ids(np.array(outside).ravel(), 20).tolist()) == {1}
    assert facts_of(folder, "item").unseen == len(tests)


def test_features_of_one_table_share_its_vocabulary(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item,history", "1,a,b|b|a", "0,c,b", "1,d,")
    features = {
        "item": {"ids": "vocabulary"},
        "history": {"table": "item", "separator": "|", "ids": "vocabulary", "missing": "drop"},
    }
    folder = prepare(tabular([path], features, {"item": 5}), tmp_path)
    # b 3 times, a twice, c and d once: there is room for three.
    plain = {"b": 2, "a": 3, "c": 4, "d": 1}
    place = {text: image(number, 5, 0) for text, number in plain.items()}
    assert bags_of(folder, "item") == [[place["a"]], [place["c"]], [place["d"]]]
    assert bags_of(folder, "history") == [[place["b"], place["b"], place["a"]], [place["b"]], []]
    assert facts_of(folder, "item").overflow == 1
    assert facts_of(folder, "item").unseen == 1


def test_min_count_leaves_out_rare_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item", "1,a", "0,b", "1,a")
    folder = prepare(tabular([path], {"item": {"ids": "vocabulary", "min_count": 2}}, {"item": 9}), tmp_path)
    assert restore_ids(np.array(bags_of(folder, "item")).ravel(), 9).tolist() == [2, 1, 2]


def test_the_manifest_has_the_load_of_each_row_range(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item", *(f"{n % 2},{n % 5}" for n in range(100)))
    folder = prepare(tabular([path], {"item": {}}, {"item": 1000}), tmp_path)
    expected = [0] * 64
    for n in range(100):
        expected[by_hash(str(n % 5), 1000) * 64 // 1000] += 1
    facts = facts_of(folder, "item")
    assert facts.histogram == expected
    assert (facts.distinct, facts.mean_pooling, facts.max_pooling, facts.one_hot) == (5, 1.0, 1, True)


# -------------------------------------------------------------------------------------------------- numbers and labels


def test_dense_transforms(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item,x", "1,a, -3 ", "0,a,", "1,a,5000000000", "0,a,0.5")
    dense = {"x": {"transform": "log1p", "missing": 9.0}}
    batch = whole(prepare(tabular([path], {"item": {}}, {"item": 9}, dense=dense), tmp_path))
    assert batch.dense[:, 0] == pytest.approx([0, 9, math.log(5_000_000_001), math.log(1.5)], rel=1e-7)
    dense = {"x": {"transform": "standardize", "mean": 1.0, "std": 2.0, "missing": 0.0}}
    batch = whole(prepare(tabular([path], {"item": {}}, {"item": 9}, dense=dense), tmp_path))
    assert batch.dense[:, 0] == pytest.approx([-2, 0, 2_499_999_999.5, -0.25], rel=1e-7)


def test_a_threshold_makes_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item", "4,a", "3.9,a", "-1,a")
    data = {"label": {"column": "y", "threshold": 4}}
    folder = prepare(tabular([path], {"item": {}}, {"item": 9}, data=data), tmp_path)
    assert whole(folder).labels.tolist() == [1, 0, 0]
    assert read_manifest(folder).splits["train"].label_mean == pytest.approx(1 / 3)
    assert read_manifest(folder).splits["train"].optimum_ne is None


# --------------------------------------------------------------------------------------------------- files and splits


def test_rows_are_numbered_over_all_files_and_splits_are_disjoint(tmp_path: Path) -> None:
    files = [
        write(tmp_path / f"day_{day}.csv", "n,y,item", *(f"{n},{n % 2},a" for n in range(day * 100, day * 100 + 100)))
        for day in range(11)
    ]
    recipe = tabular(
        [tmp_path / "day_*.csv"],
        {"item": {}},
        {"item": 9},
        dense={"n": {}},
        data={"split": {"validation": 0.1, "test": 0.2}},
    )
    folder = prepare(recipe, tmp_path)
    found = {name: whole(folder, name).dense[:, 0].astype(int).tolist() for name in ("train", "validation", "test")}
    hashes = {n: mix((n + 0x5D588B656C078965) % 2**64) / 2**64 for n in range(1100)}
    assert found["validation"] == [n for n in range(1100) if hashes[n] < 0.1]
    assert found["test"] == [n for n in range(1100) if 0.1 <= hashes[n] < 0.3]
    assert sorted(found["train"] + found["validation"] + found["test"]) == list(range(1100))
    assert len(files) == 11


def test_no_value_of_the_split_column_is_in_two_splits(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,user", *(f"{n % 2},u{n % 60}" for n in range(600)))
    data = {"split": {"on": "user", "validation": 0.2, "test": 0.2}}
    folder = prepare(tabular([path], {"user": {}}, {"user": 10**6}, data=data), tmp_path)
    users = {name: {bag[0] for bag in bags_of(folder, "user", name)} for name in ("train", "validation", "test")}
    assert sum(len(found) for found in users.values()) == len(set.union(*users.values())) == 60
    assert all(users.values())


@pytest.mark.parametrize(
    "raw",
    [
        b"y,item\r\n1,a\r\n0,b\r\n",
        b"\xef\xbb\xbfy,item\n1,a\n0,b\n",
        b"y,item\n1,a\n0,b",
        b"y,item\n1,a\n\n0,b\n\n",
        b'y,item\n1,"a"\n0,b\n',
        b"other,item,y\nz,a,1\nz,b,0\n",
    ],
    ids=["CRLF", "BOM", "no last newline", "blank lines", "quotes", "other columns"],
)
def test_csv_in_the_wild(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(raw)
    folder = prepare(tabular([tmp_path / "a.csv"], {"item": {}}, {"item": 99}), tmp_path)
    assert whole(folder).labels.tolist() == [1, 0]
    assert bags_of(folder, "item") == [[by_hash("a", 99)], [by_hash("b", 99)]]


def test_more_rows_than_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlrmx.data.tables.CSV_READ_BYTES", 100)
    monkeypatch.setattr("dlrmx.data.tables.PARQUET_READ_ROWS", 7)
    values = [str(n * n) for n in range(100)]
    csv = write(tmp_path / "a.csv", "y,item", *(f"1,{value}" for value in values))
    table = write_parquet(tmp_path / "b.parquet", y=[1] * 100, item=values)
    seen: list[tuple[str, int, int | None]] = []
    recipe = tabular([csv, table], {"item": {"ids": "vocabulary"}}, {"item": 99}, dense={"y": {}})
    folder = prepare(recipe, tmp_path, progress=lambda *step: seen.append(step))
    assert whole(folder).labels.tolist() == [1] * 200
    assert bags_of(folder, "item")[:100] == bags_of(folder, "item")[100:]
    assert [step for step in seen if step[1] == 200] == [
        ("survey", 200, None),
        ("count", 200, 200),
        ("prepare", 200, 200),
    ]
    prepare(tabular([table], {"item": {}}, {"item": 99}), tmp_path, progress=lambda *step: seen.append(step))
    assert seen[-1] == ("prepare", 100, None)


# ------------------------------------------------------------------------------------------------------------ bad input

HASH: dict[str, Any] = {"item": {}}


def refused(path: Path, tmp_path: Path, features: dict[str, Any] = HASH, **more: Any) -> str:
    """The error for a file, from a folder that then holds no prepared data."""
    rows = {feature.get("table", name): 50 for name, feature in features.items()}
    with pytest.raises(InputError) as caught:
        prepare(tabular([path], features, rows, **more), tmp_path / "root")
    assert not list((tmp_path / "root").glob("prepared/*"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["y,item", "1,a", "2,a"], ":3: y: the label is 2"),
        (["y,item", "1,a", "-1,a"], ":3: y: the label is -1"),
        (["y,item", "0.5,a"], ":2: y: the label is 0.5"),
        (["y,item", "1,a", ",a"], ":3: y: the label is missing"),
        (["y,item", "1,a", "y,item"], ":3: y: 'y' is not a number"),
        (["y,item", "1,a", "nan,a"], ":3: y: 'nan' is not a finite number"),
        (["y,item,z", "1,a,b", "1,a"], ":3: 2 fields, not 3"),
        (["y,item", "1,a,b"], ":2: 3 fields, not 2"),
        ([], "a.csv: the file is empty"),
        (["y,item"], "a.csv: no rows"),
        (["y;item", "1;a"], "no column y"),
        (["y,items", "1,a"], "features.item: no column item\n    Did you mean items?"),
        (["y,item,item", "1,a,b"], "features.item: 2 columns are called item"),
    ],
)
def test_bad_csv_is_refused_by_file_and_row(lines: Sequence[str], expected: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", *lines)
    error = refused(path, tmp_path)
    assert str(path) in error
    assert expected in error


@pytest.mark.parametrize(
    ("value", "expected"),
    [("abc", "'abc' is not a number"), ("inf", "'inf' is not a finite"), ("0x10", "'0x10'"), ("1e39", "32-bit float")],
)
def test_a_dense_field_that_is_no_number(value: str, expected: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item,x", "1,a,1", f"1,a,{value}")
    error = refused(path, tmp_path, dense={"x": {}})
    assert f"{path}:3: x: " in error
    assert expected in error


def test_a_truncated_gzip_file(tmp_path: Path) -> None:
    raw = gzip.compress("\n".join(["y,item", *(f"1,{n * n}" for n in range(10_000))]).encode())
    (tmp_path / "a.csv.gz").write_bytes(raw[:-100])
    assert "Truncated" in refused(tmp_path / "a.csv.gz", tmp_path)


def test_a_gzip_file_that_is_cut_after_its_first_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CSV_READ_BYTES", 1 << 14)
    raw = gzip.compress("\n".join(["y,item", *(f"1,{n * n}" for n in range(100_000))]).encode())
    (tmp_path / "a.csv.gz").write_bytes(raw[:-100])
    assert f"{tmp_path / 'a.csv.gz'}: Truncated" in refused(tmp_path / "a.csv.gz", tmp_path)


def test_a_file_that_cannot_be_read_says_nothing_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to("/proc/self/mem")  # its first page cannot be read
    with pytest.raises(Unreadable, match=r"a\.csv: cannot be read: Input/output error"):
        prepare(tabular([tmp_path / "a.csv"], HASH, {"item": 50}), tmp_path)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"y,item\n1,a\n1,\xff\xfe\n")
    error = refused(tmp_path / "a.csv", tmp_path)
    assert f"{tmp_path / 'a.csv'}:3: item: " in error
    assert "is not UTF-8" in error


def test_text_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,item\n1,a\n", encoding="utf-16")
    assert "not UTF-8 text" in refused(tmp_path / "a.csv", tmp_path)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(("column", "policy"), [("unread", "fail"), ("unread", "skip"), ("item", "skip")])
def test_an_unclosed_quote_swallows_no_rows(ending: str, column: str, policy: str, tmp_path: Path) -> None:
    bad = '1,"a,b' if column == "item" else '1,a,"b'
    lines = ["y,item,unread", "1,a,b", '0,"a ""x""",5" pipe', "", bad, *["0,a,b"] * 50]
    path = write(tmp_path / "a.csv", *lines, end=ending)
    error = refused(path, tmp_path, data={"bad_rows": policy})
    assert f"{path}:5: a quoted field runs over the end of its line" in error


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("bad", "what"), [("2,a", "y: the label is 2"), ("1", "1 fields, not 2")])
@pytest.mark.parametrize("read_bytes", [8 << 20, 40])
def test_lines_are_counted_with_the_empty_ones(
    ending: str, bad: str, what: str, read_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CSV_READ_BYTES", read_bytes)
    lines = ["", "y,item", "", "", *["1,a"] * 20, "", "0,b", bad, "", *["1,a"] * 5]
    path = write(tmp_path / "a.csv", *lines, end=ending)
    number = lines.index(bad) + 1
    assert f"{path}:{number}: {what}" in refused(path, tmp_path)
    made = tabular([path], {"item": {}}, {"item": 9}, data={"bad_rows": "skip"})
    assert read_manifest(prepare(made, tmp_path / "root")).rows.first == [f"{path}:{number}: {what}"]


def test_a_bad_row_behind_a_quote_that_is_not_closed_on_its_line(tmp_path: Path) -> None:
    """The quoted field is what is wrong first; the number of no row behind it is sure."""
    path = write(tmp_path / "a.csv", "y,item", "1,a", '1,"a', 'b"', "1,c", "2,d")
    assert f"{path}:3: a quoted field runs over the end of its line" in refused(path, tmp_path)


def test_a_weight_beyond_32_bits(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item,w", "1,a|b,1|2", "1,a|b,1|1e39")
    error = refused(path, tmp_path, {"item": {"separator": "|", "weights": "w"}})
    assert f"{path}:3: w: a weight of item is beyond the range of a 32-bit float" in error


def test_parquet_that_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", "y,item", "1,a")
    assert str(path) in refused(path, tmp_path)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1.0, 2.5]), "row 2: item: 2.5 is no category"),
        (pa.array([1, 2], pa.timestamp("us")), "item: holds timestamp[us]"),
        (pa.array([b"a", b"b"]), "item: holds binary"),
    ],
)
def test_a_parquet_column_that_is_no_category(column: pa.Array, expected: str, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", y=[1, 0], item=column)
    assert f"{path}" in refused(path, tmp_path)
    assert expected in refused(path, tmp_path)


def test_a_parquet_column_that_is_no_number(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", y=[1, 0], item=["a", "b"], x=[[1.0], [2.0]])
    assert "x: holds list<" in refused(path, tmp_path, dense={"x": {}})
    path = write_parquet(tmp_path / "a.parquet", y=[1, 0], item=["a", "b"], x=[1.0, math.inf])
    assert "row 2: x: inf is not a finite number" in refused(path, tmp_path, dense={"x": {}})


@pytest.mark.parametrize(
    ("tags", "weights", "expected"),
    [
        ("a|b", "1", "1 weights for 2 values"),
        ("a|b", "1|", "no weight for a value"),
        ("a", "z", "'z' is not a number"),
    ],
)
def test_bad_weights(tags: str, weights: str, expected: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,tags,w", "1,a,1", f"1,{tags},{weights}")
    error = refused(path, tmp_path, {"tags": {"separator": "|", "weights": "w"}})
    assert f"{path}:3: w: {expected}" in error


def test_files_that_disagree(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", y=[1], item=[["a"]])
    write_parquet(tmp_path / "b.parquet", y=[1], item=["a"])
    error = refused(tmp_path / "*.parquet", tmp_path)
    assert "b.parquet: features.item: column item holds single values here" in error


def test_no_row_left_to_train_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item", "1,a")
    error = refused(path, tmp_path, data={"split": {"validation": 0.5, "test": 0.4999999}})
    assert "no rows to train on" in error


def test_one_table_has_one_kind_of_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item", "1,a")
    features = {"item": {}, "other": {"column": "item", "table": "item", "ids": "vocabulary"}}
    assert "tables.item: item, other share a table" in refused(path, tmp_path, features)


def test_one_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "y,item", "1,a")
    folder = prepare(tabular([path], {"item": {}}, {"item": 50}), tmp_path)
    assert read_manifest(folder).splits["train"].rows == 1
    assert read_manifest(folder).splits["test"].label_mean is None
