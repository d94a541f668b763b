"""Any bytes at all as a file in Criteo's layout: no crash, and each row is kept or counted as bad.

What is bad is decided a second time here, field by field in plain Python.
"""

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from criteo_files import CATEGORIES, INTEGERS, criteo, row
from data_recipes import whole
from dlrmx.data import criteo as module
from dlrmx.data import criteo_lines
from dlrmx.data.manifest import read_manifest, verify
from dlrmx.data.prepare import prepare
from dlrmx.errors import InputError

Policy = Literal["fail", "skip", "zero"]

NUMBER = re.compile(rb" *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? *")
HEX = re.compile(rb"(0[xX])?[0-9a-fA-F]{1,16}")
HEADER = "\t".join(["label", *INTEGERS, *CATEGORIES]).encode()
FEATURES: dict[str, Any] = {"C1": {}, "C2": {"ids": "vocabulary"}, "C26": {"missing": "drop"}}
READ = [14, 15, 39]  # the fields of these features

odd = st.sampled_from(
    [b"", b" ", b"0", b"1", b"2", b"-1", b"0.5", b"1.0", b"-", b"+", b".", b"1e5", b"1e999", b"nan", b"inf", b"1_0"]
    + [b"2147483648", b"-2147483649", b"9" * 30, b"99999999", b"100000000", b"0x1F", b"0X", b"ABCDEF12", b"g" * 8]
    + [b"f" * 16, b"f" * 17, b"\xff\xfe", "Zürich".encode(), b"\0", b'"1"', b"1,2", b"\r", b"00000001\r", b"label"]
)
field = odd | st.binary(max_size=12).map(lambda raw: raw.replace(b"\t", b" ").replace(b"\n", b" "))


@st.composite
def line(draw: st.DrawFn) -> bytes:
    """A good row with some fields changed, left out or added; or any bytes."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.binary(max_size=40)).replace(b"\n", b"")
    if kind == 1:
        return draw(st.sampled_from([b"", b"\r", HEADER, b"\t" * 39, b"\t" * 40]))
    cells = row(draw(st.sampled_from(["0", "1"]))).split(b"\t")
    for _ in range(draw(st.integers(0, 2))):
        cells[draw(st.sampled_from([0, 1, 13, *READ, 20]))] = draw(field)
    if draw(st.integers(0, 5)) == 0:
        cells = cells[: draw(st.integers(1, 40))] + draw(st.lists(field, max_size=2))
    return b"\t".join(cells)


@st.composite
def file(draw: st.DrawFn) -> bytes:
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    head = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", HEADER + end, end]))
    raw = head + end.join(draw(st.lists(line(), max_size=12))) + draw(st.sampled_from([b"", end]))
    return raw.replace(b"\t", b",") if draw(st.integers(0, 5)) == 0 else raw


def rows_of(raw: bytes) -> list[list[bytes]]:
    """The rows of a file, by fields."""
    lines = [line for line in raw.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line not in (b"", b"\r")]
    if not lines:
        return []
    delimiter = b"\t" if b"\t" in lines[0] else b","
    rows = [line.removesuffix(b"\r").split(delimiter) for line in lines]
    return rows[1:] if rows[0][0].strip().lower() == b"label" else rows


def number(cell: bytes) -> float | None:
    """None where it is no finite number."""
    value = float(cell) if NUMBER.fullmatch(cell) else float("inf")
    return value if abs(value) < float("inf") else None


def is_bad(cells: list[bytes]) -> bool:
    if len(cells) != 40 or number(cells[0]) not in (0, 1):
        return True
    if any(cell and number(cell) is None for cell in cells[1:14]):
        return True
    return any(cells[place] and not HEX.fullmatch(cells[place]) for place in READ)


@contextmanager
def cut(piece_bytes: int, read_bytes: int) -> Iterator[None]:
    """Pieces and blocks of so many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_BYTES", piece_bytes)
        patch.setattr(criteo_lines, "READ_BYTES", read_bytes)
        yield


def check(raw: bytes, policy: Policy, piece_bytes: int, read_bytes: int) -> None:
    rows = rows_of(raw)
    bad = [is_bad(cells) for cells in rows]
    with tempfile.TemporaryDirectory() as folder, cut(piece_bytes, read_bytes):
        path = Path(folder) / "a"
        path.write_bytes(raw)
        try:
            made = prepare(criteo([path], features=FEATURES, rows=20, bad_rows=policy), Path(folder))
        except InputError as error:
            said = str(error)
            if raw.startswith(b"\x1f\x8b"):
                assert "damaged or truncated gzip" in said
                return
            assert "the file is empty" in said or "no rows" in said or "39 columns" in said or policy == "fail"
            assert "no rows in" not in said or not rows
            assert "no rows to train on" not in said or all(bad)
            assert not list(Path(folder).glob("prepared/*"))
            return
        verify(made)
        facts = read_manifest(made)
        assert not (policy == "fail" and any(bad))
        assert (facts.rows.read, facts.rows.bad) == (len(rows), sum(bad))
        kept = [cells for cells, wrong in zip(rows, bad, strict=True) if not wrong or policy == "zero"]
        labels = [number(cells[0]) if len(cells) == 40 else None for cells in kept]
        assert whole(made).labels.tolist() == [1.0 if label == 1 else 0.0 for label in labels]
        assert len(facts.rows.first) == min(sum(bad), 5)


cases = given(
    raw=file() | st.binary(max_size=300),
    policy=st.sampled_from(["fail", "skip", "zero"]),
    piece_bytes=st.sampled_from([1 << 20, 50, 400, 1000]),
    read_bytes=st.sampled_from([1 << 20, 37, 500]),
)
allowed = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=allowed)
@cases
def test_any_bytes(raw: bytes, policy: Policy, piece_bytes: int, read_bytes: int) -> None:
    check(raw, policy, piece_bytes, read_bytes)


@pytest.mark.slow
def test_any_bytes_for_ten_minutes() -> None:
    began = time.monotonic()
    while time.monotonic() - began < 600:
        settings(max_examples=100, deadline=None, database=None, suppress_health_check=allowed)(cases(check))()
