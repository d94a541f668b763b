"""Criteo's layout, from files to prepared rows: every way in which they are found to be written, and bad."""

import gzip
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from criteo_files import CATEGORIES, INTEGERS, criteo, random_rows, row, write
from data_recipes import whole
from dlrmx.data import criteo_lines
from dlrmx.data.criteo_lines import count_rows, read_lines
from dlrmx.data.manifest import Manifest, read_manifest
from dlrmx.data.permute import restore_ids
from dlrmx.data.prepare import prepare
from dlrmx.data.source import Extent, Piece
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Recipe
from hash_reference import MASK, hash_of_bytes, mix, text_hash

ONE: dict[str, Any] = {"C1": {}}


def by_hash(value: int, rows: int = 1000) -> int:
    """The id of a category before the table's permutation."""
    return 1 + hash_of_bytes(value.to_bytes(8, "little")) % (rows - 1)


def ids(folder: Path, name: str, rows: int = 1000, split: str = "train") -> list[int]:
    return [int(number) for number in restore_ids(whole(folder, split).bags[name].ids, rows)]


def prepared(made: Recipe, root: Path) -> tuple[Path, Manifest]:
    folder = prepare(made, root)
    return folder, read_manifest(folder)


def refused(path: Path, root: Path, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        prepare(criteo([path], **more), root / "root")
    assert not list((root / "root").glob("prepared/*"))
    return str(caught.value)


# -------------------------------------------------------------------------------------------------- well-formed files


def test_every_column_is_read_as_written(tmp_path: Path) -> None:
    lines = random_rows(300)
    folder, manifest = prepared(criteo([write(tmp_path / "train.txt", *lines)]), tmp_path)
    batch = whole(folder)
    cells = [line.decode().split("\t") for line in lines]
    assert batch.labels.tolist() == [float(cell[0]) for cell in cells]
    dense = [[math.log1p(max(int(text or 0), 0)) for text in cell[1:14]] for cell in cells]
    assert batch.dense == pytest.approx(np.array(dense), rel=1e-6)
    for number, name in enumerate(CATEGORIES):
        texts = [cell[14 + number] for cell in cells]
        assert ids(folder, name) == [by_hash(int(text, 16)) if text else 0 for text in texts]
        assert manifest.features[name].missing == texts.count("")
    assert (manifest.rows.read, manifest.rows.bad) == (300, 0)


FORMS = {
    "CRLF": lambda lines: b"\r\n".join([*lines, b""]),
    "BOM": lambda lines: b"\xef\xbb\xbf" + b"\n".join([*lines, b""]),
    "no last newline": lambda lines: b"\n".join(lines),
    "blank lines": lambda lines: b"\n\r\n" + b"\n\n".join(lines) + b"\n\n\n",
    "header": lambda lines: b"\n".join([header(), *lines, b""]),
    "BOM, header, CRLF": lambda lines: b"\xef\xbb\xbf" + b"\r\n".join([header(), *lines, b""]),
    "blank line, header": lambda lines: b"\n".join([b"", header(), *lines, b""]),
    "commas": lambda lines: b"\n".join([*lines, b""]).replace(b"\t", b","),
    "commas, header": lambda lines: b"\n".join([header(), *lines, b""]).replace(b"\t", b","),
    "gzip": lambda lines: gzip.compress(b"\n".join([*lines, b""])),
    "two gzip members": lambda lines: b"".join(gzip.compress(line + b"\n") for line in lines),
}


def header() -> bytes:
    return "\t".join(["label", *INTEGERS, *CATEGORIES]).encode()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("read_bytes", [100, 1 << 20])
def test_the_same_rows_however_they_are_written(
    form: str, read_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(criteo_lines, "READ_BYTES", read_bytes)
    lines = random_rows(40)
    (tmp_path / "a").write_bytes(FORMS[form](lines))
    plain, other = (
        whole(prepare(criteo([path]), tmp_path)) for path in (write(tmp_path / "b", *lines), tmp_path / "a")
    )
    assert (other.labels == plain.labels).all()
    assert (other.dense == plain.dense).all()
    assert all((other.bags[name].ids == plain.bags[name].ids).all() for name in CATEGORIES)
    assert count_rows(Piece(tmp_path / "a")).rows == 40


def test_floats_in_the_integer_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a", row(integers={"I1": "3.0", "I2": "-1.0", "I3": "1e3", "I4": " 7 ", "I5": "+2"}))
    dense = whole(prepare(criteo([path]), tmp_path)).dense[0, :5]
    assert dense.tolist() == pytest.approx([math.log1p(x) for x in (3, 0, 1000, 7, 2)], rel=1e-6)


@pytest.mark.parametrize(
    "value",
    [0, 1, 9, 10, 99_999_999, 100_000_000, 2**31 - 1, 2**31, 2**32, 2**63, 10**30, -1, -99_999_999, -(2**31), -(2**63)],
)
def test_integers_of_any_size(value: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a", row(integers={"I1": str(value), "I13": str(value)}))
    dense = whole(prepare(criteo([path]), tmp_path)).dense[0]
    assert dense[[0, 12]].tolist() == pytest.approx([math.log1p(max(value, 0))] * 2, rel=1e-6)


def test_a_missing_integer_is_what_the_recipe_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a", row(integers={"I2": ""}))
    made = criteo([path])
    dense = {**made.model_dump()["dense"], "I2": {"transform": "log1p", "missing": -1.0}}
    assert whole(prepare(Recipe.model_validate({**made.model_dump(), "dense": dense}), tmp_path)).dense[0, 1] == -1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("05db9164", 0x05DB9164),
        ("05DB9164", 0x05DB9164),
        ("0x05db9164", 0x05DB9164),
        ("0X5dB9164", 0x05DB9164),
        ("5db9164", 0x05DB9164),
        ("f", 15),
        ("80000000", 2**31),
        ("ffffffff", 2**32 - 1),
        ("100000000", 2**32),
        ("ffffffffffffffff", 2**64 - 1),
        ("0", 0),
    ],
)
def test_categories_are_unsigned_however_they_are_written(text: str, value: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a", row(C1=text))
    assert ids(prepare(criteo([path], features=ONE), tmp_path), "C1") == [by_hash(value)]
    remainder = prepare(criteo([path], features={"C1": {"ids": "modulo"}}), tmp_path)
    assert ids(remainder, "C1") == [1 + value % 999]


def test_any_other_character_in_the_place_of_a_digit_is_bad(tmp_path: Path) -> None:
    """A word of 8 characters is decoded at once, so what is no digit has to be seen in each place."""
    characters = [bytes([code]) for code in range(256) if code not in b"\t\n\r"]
    for at in (0, 7):
        words = [b"5db91645"[:at] + character + b"5db91645"[at + 1 :] for character in characters]
        path = write(tmp_path / f"{at}", *(row(C1="f" * 8).replace(b"f" * 8, word) for word in words))
        folder, manifest = prepared(criteo([path], features=ONE, bad_rows="skip"), tmp_path)
        good = [word for word in words if re.fullmatch(rb"[0-9a-fA-F]{8}", word)]
        assert manifest.rows.bad == len(characters) - 22
        assert ids(folder, "C1") == [by_hash(int(word, 16)) for word in good]


def test_a_missing_category_takes_a_row_of_its_own_or_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a", row(C1=""), row(C1="0"))
    features: dict[str, Any] = {"C1": {}, "none": {"column": "C1", "table": "C1", "missing": "drop"}}
    folder, manifest = prepared(criteo([path], features=features), tmp_path)
    assert ids(folder, "C1") == [0, by_hash(0)]
    assert whole(folder).bags["none"].lengths.tolist() == [0, 1]
    assert ids(folder, "none") == [by_hash(0)]
    assert manifest.features["none"].missing == 1


def test_a_vocabulary_is_of_the_training_rows_alone(tmp_path: Path) -> None:
    names = ["%x" % (n % 7 + 16) for n in range(400)]
    path = write(tmp_path / "a", *(row(C1=name) for name in names))
    split = {"validation": 0.2, "test": 0.1}
    folder, manifest = prepared(criteo([path], features={"C1": {"ids": "vocabulary"}}, rows=7, split=split), tmp_path)
    hashes = [mix((n + 0x5D588B656C078965) & MASK) / 2**64 for n in range(400)]
    train = [name for name, number in zip(names, hashes, strict=True) if number >= 0.3]
    order = sorted(set(train), key=lambda name: (-train.count(name), int(name, 16)))
    held = {name: place + 2 if place < 5 else 1 for place, name in enumerate(order)}
    assert ids(folder, "C1", 7) == [held[name] for name in train]
    assert manifest.features["C1"].overflow == 2
    assert manifest.features["C1"].unseen == sum(held[name] == 1 for name in names)


def test_rows_are_numbered_over_all_files_and_splits_are_disjoint(tmp_path: Path) -> None:
    for day in range(11):
        write(tmp_path / f"day_{day}", *(row(integers={"I1": str(day * 50 + n)}) for n in range(50)))
    made = criteo([tmp_path / "day_*"], features=ONE, split={"validation": 0.1, "test": 0.2})
    folder = prepare(made, tmp_path)
    found = {
        name: np.rint(np.expm1(whole(folder, name).dense[:, 0])).astype(int).tolist()
        for name in ("train", "validation", "test")
    }
    hashes = [mix((n + 0x5D588B656C078965) & MASK) / 2**64 for n in range(550)]
    assert found["validation"] == [n for n in range(550) if hashes[n] < 0.1]
    assert found["test"] == [n for n in range(550) if 0.1 <= hashes[n] < 0.3]
    assert found["train"] == [n for n in range(550) if hashes[n] >= 0.3]


def test_no_value_of_the_split_column_is_in_two_splits(tmp_path: Path) -> None:
    path = write(tmp_path / "a", *random_rows(400))
    split = {"on": "C3", "validation": 0.3, "test": 0.3}
    folder = prepare(criteo([path], rows=10**6, split=split), tmp_path)
    found = [set(ids(folder, "C3", 10**6, name)) for name in ("train", "validation", "test")]
    assert all(found)
    assert sum(map(len, found)) == len(set.union(*found))


def test_lines_keep_their_numbers_between_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a file is cut, each row is in one piece."""
    monkeypatch.setattr(criteo_lines, "READ_BYTES", 64)
    path = write(tmp_path / "a", *random_rows(12))
    size = path.stat().st_size
    whole_file = [lines.text(n, 14) for lines in read_lines(Piece(path)) for n in range(len(lines.numbers))]
    for cut in range(1, size, 7):
        found = []
        for piece in (Piece(path, 0, cut), Piece(path, cut, None)):
            rows = [lines.text(n, 14) for lines in read_lines(piece) for n in range(len(lines.numbers))]
            assert count_rows(piece) == Extent(len(rows), len(rows))
            found += rows
        assert found == whole_file


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (row("2"), ":2: label: the label is '2', not 0 or 1"),
        (row("-1"), ":2: label: the label is '-1', not 0 or 1"),
        (row("0.5"), ":2: label: the label is '0.5', not 0 or 1"),
        (row(""), ":2: label: the label is missing"),
        (header(), ":2: label: the label is 'label'"),
        (row()[:-9], ":2: 39 fields, not 40"),
        (row() + b"\t", ":2: 41 fields, not 40"),
        (b"1", ":2: 1 fields, not 40"),
        (row(integers={"I3": "3a"}), ":2: I3: '3a' is no finite number"),
        (row(integers={"I3": "nan"}), ":2: I3: 'nan' is no finite number"),
        (row(integers={"I3": "1e999"}), ":2: I3: '1e999' is no finite number"),
        (row(integers={"I3": "--1"}), ":2: I3: '--1' is no finite number"),
        (row(integers={"I3": "-"}), ":2: I3: '-' is no finite number"),
        (row(C26="0000000g"), ":2: C26: '0000000g' is no id of table C26"),
        (row(C26="ZZ"), ":2: C26: 'ZZ' is no id"),
        (row(C26="1" * 17), ":2: C26: '11111111111111111' is no id"),
        (row(C26="Zürich"), ":2: C26: 'Zürich' is no id"),
        (row(C26="0").replace(b"0000000f", b"\xff\xfe000000"), ":2: C15: '\\\\xff\\\\xfe000000' is no id"),
    ],
)
def test_a_bad_row_is_refused_left_out_or_zeroed(bad: bytes, expected: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a", row(), bad, row("0"), end=b"\r\n")
    assert f"{path}{expected}" in refused(path, tmp_path)
    folder, manifest = prepared(criteo([path], bad_rows="skip"), tmp_path)
    assert whole(folder).labels.tolist() == [1, 0]
    assert (manifest.rows.read, manifest.rows.bad) == (3, 1)
    assert manifest.rows.first[0].startswith(f"{path}{expected}")
    folder, manifest = prepared(criteo([path], bad_rows="zero"), tmp_path)
    assert len(whole(folder).labels) == 3
    assert (manifest.rows.read, manifest.rows.bad) == (3, 1)


@pytest.mark.parametrize("first", [b"I1\t", row("i1"), row("I1")[:-9] + b"\t\t"])
def test_a_header_without_a_label_has_39_columns(first: bytes, tmp_path: Path) -> None:
    """With any other number it is a row, and a bad one: left out in silence, nobody would miss it."""
    _, manifest = prepared(criteo([write(tmp_path / "a", first, row())], bad_rows="skip"), tmp_path)
    assert (manifest.rows.read, manifest.rows.bad) == (2, 1)


def test_only_columns_that_are_read_can_be_bad(tmp_path: Path) -> None:
    path = write(tmp_path / "a", row(C26="ZZ"))
    assert prepared(criteo([path], features=ONE), tmp_path)[1].rows.bad == 0


def test_what_is_bad_in_a_row_that_is_kept_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a", row("x", {"I1": "x"}, C1="x", C2="2"), b"1\t2")
    folder = prepare(criteo([path], features={"C1": {}, "C2": {}}, bad_rows="zero"), tmp_path)
    batch = whole(folder)
    assert batch.labels.tolist() == [0, 0]
    assert batch.dense[:, 0].tolist() == [0, 0]
    assert batch.dense[:, 1].tolist() == pytest.approx([math.log(3), 0])
    assert (ids(folder, "C1"), ids(folder, "C2")) == ([0, 0], [by_hash(2), 0])


def test_bad_categories_are_clamped_or_hashed(tmp_path: Path) -> None:
    path = write(tmp_path / "a", row(C1="ZZ"), row(C1="3e6"), row(C1="3e7"))
    identity: dict[str, Any] = {"C1": {"ids": "identity"}}
    for made, expected in [
        (criteo([path], features=ONE, bad_ids="clamp"), [by_hash(0), by_hash(0x3E6), by_hash(0x3E7)]),
        (criteo([path], features=identity, bad_ids="clamp"), [1, 999, 999]),
    ]:
        assert ids(prepare(made, tmp_path), "C1") == expected
    folder, manifest = prepared(criteo([path], features=ONE, bad_ids="hash"), tmp_path)
    assert ids(folder, "C1")[0] == by_hash(text_hash("ZZ"))
    assert (manifest.features["C1"].bad, manifest.features["C1"].first_bad) == (1, [f"{path}:1: C1: 'ZZ'"])
    folder, manifest = prepared(criteo([path], features=identity, bad_ids="hash"), tmp_path)
    assert ids(folder, "C1")[1:] == [999, by_hash(0x3E7)]
    assert manifest.features["C1"].bad == 2


def test_the_first_five_offenders_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo_lines, "READ_BYTES", 1000)
    lines = [row() if n % 10 else row("3") for n in range(1, 101)]
    _, manifest = prepared(criteo([write(tmp_path / "a", *lines)], bad_rows="skip"), tmp_path)
    assert manifest.rows.bad == 10
    assert [text.split(":")[1] for text in manifest.rows.first] == ["10", "20", "30", "40", "50"]


def test_the_unlabelled_test_file_is_refused_for_that_reason(tmp_path: Path) -> None:
    lines = [b"\t".join(line.split(b"\t")[1:]) for line in random_rows(3)]
    path = write(tmp_path / "test.txt", *lines)
    for policy in ("fail", "skip", "zero"):
        assert f"{path}:1: 39 columns: no label" in refused(path, tmp_path, bad_rows=policy)


@pytest.mark.parametrize("kept", [30, 2000, -4])
def test_a_truncated_gzip_file_is_named(kept: int, tmp_path: Path) -> None:
    raw = gzip.compress(b"\n".join(random_rows(200)))
    (tmp_path / "day_0.gz").write_bytes(raw[:kept])
    for policy in ("fail", "skip"):
        assert f"{tmp_path / 'day_0.gz'}: damaged or truncated gzip" in refused(
            tmp_path / "day_0.gz", tmp_path, bad_rows=policy
        )


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    raw = bytearray(gzip.compress(b"\n".join(random_rows(200))))
    raw[len(raw) // 2] ^= 0xFF
    (tmp_path / "a.gz").write_bytes(raw)
    assert "damaged or truncated gzip" in refused(tmp_path / "a.gz", tmp_path)


@pytest.mark.parametrize("raw", [b"", b"\n\r\n", b"\xef\xbb\xbf"])
def test_an_empty_file(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(raw)
    assert f"{tmp_path / 'a'}: the file is empty" in refused(tmp_path / "a", tmp_path)


def test_a_header_alone(tmp_path: Path) -> None:
    assert "no rows in the 1 file(s)" in refused(write(tmp_path / "a", header()), tmp_path)


def test_no_file(tmp_path: Path) -> None:
    assert "no file matches" in refused(tmp_path / "day_*", tmp_path)


def test_one_row(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(row())
    assert prepared(criteo([path]), tmp_path)[1].splits["train"].rows == 1


def test_what_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo_lines, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(criteo_lines, "READ_BYTES", 1000)
    path = write(tmp_path / "a", row(), bytes(3000))
    assert "a line is longer than" in refused(path, tmp_path, bad_rows="skip")
