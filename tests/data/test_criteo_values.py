"""Fields decoded many at a time are what one at a time would be."""

import re
from pathlib import Path

import numpy as np

from dlrmx.data.criteo_lines import Lines, read_lines
from dlrmx.data.criteo_values import hex_keys, numbers
from dlrmx.data.source import Piece

FIELDS = np.array([14, 39])


def lines_of(path: Path, texts: list[bytes]) -> Lines:
    """A row for each text, which is its category 1 and 26, and its integer 1."""
    rows = [b"\t".join([b"0", text, *[b""] * 12, text, *[b""] * 24, text]) for text in texts]
    path.write_bytes(b"\n".join(rows) + b"\n")
    (lines,) = read_lines(Piece(path))
    return lines


def test_hexadecimal_with_any_byte_at_any_place(tmp_path: Path) -> None:
    usable = [bytes([byte]) for byte in range(256) if byte not in b"\t\n\r"]
    texts = [b"05bA9fE7"[:place] + one + b"05bA9fE7"[place + 1 :] for place in range(8) for one in usable]
    texts += [b"05bA9fE7"[:size] for size in range(9)] + [b"0x1F", b"123456789", b"f" * 16, b"f" * 17]
    keys = hex_keys(lines_of(tmp_path / "a.tsv", texts), FIELDS)
    found = [re.fullmatch(rb"(?:0[xX])?([0-9a-fA-F]{1,16})", text) for text in texts]
    for place in range(2):
        assert keys.values[place].tolist() == [int(one[1], 16) if one else 0 for one in found]
        assert keys.bad[place].tolist() == [one is None and text != b"" for one, text in zip(found, texts, strict=True)]
        assert keys.empty[place].tolist() == [text == b"" for text in texts]


def test_numbers_of_any_length(tmp_path: Path) -> None:
    digits = [sign + b"12345678901234567890"[:size] for sign in (b"", b"-") for size in range(1, 20)]
    texts = [*digits, b"", b"-", b"1-", b"1a", b"0.5", b"1e3", b" 7", b"1e999", b"nan", b"007", b"/", b":"]
    found = numbers(lines_of(tmp_path / "a.tsv", texts), np.array([1]))
    good = [text for text in texts if re.fullmatch(rb" ?-?[0-9.]+(e3)?", text)]
    expected = [float(text) if text in good else float("nan") for text in texts]
    assert np.array_equal(found.values[0], expected, equal_nan=True)
    assert found.bad[0].tolist() == [text not in good and text != b"" for text in texts]
