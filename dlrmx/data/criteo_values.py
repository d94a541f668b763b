"""Fields of Criteo's layout as numbers: categories as unsigned hexadecimal, integers as float64, labels as 0 and 1.

The usual field, of up to 8 characters, is read as one 64-bit word and decoded within it, all fields of a block at once;
any other one by itself. A word holds its first character in the lowest byte.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.criteo_lines import Lines

_HEX = re.compile(rb"(?:0[xX])?([0-9a-fA-F]{1,16})")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

UInt64s = NDArray[np.uint64]
Bools = NDArray[np.bool_]

# By number of characters, 0 to 8: the mask of so many, the last ones of a word.
_KEPT = np.array([(2**64 - 1) << 8 * (8 - count) & (2**64 - 1) for count in range(9)], dtype=np.uint64)


@dataclass(frozen=True)
class Keys:
    """Categories: (F, N) unsigned values; which fields are empty, and which are bad: no hexadecimal of 64 bits."""

    values: UInt64s
    empty: Bools
    bad: Bools


@dataclass(frozen=True)
class Numbers:
    """(F, N) float64, NaN where a field is empty or bad: no finite number."""

    values: NDArray[np.float64]
    bad: Bools


def hex_keys(lines: Lines, fields: NDArray[np.int64]) -> Keys:
    """The given fields of each row, as they are read in upper or lower case, with or without 0x."""
    ends = lines.ends.T[fields]
    lengths = ends - lines.starts.T[fields]
    empty = lengths == 0
    # In place, step by step: for as many arrays more, the same takes a fourth longer.
    marked = _marked(lines, ends, lengths)
    letters = marked >> np.uint64(6)
    letters &= _each(0x01)
    digits = marked & _each(0x0F)
    digits += letters * np.uint64(9)
    encoded = digits + _each(0x06)
    encoded >>= np.uint64(4)
    encoded &= _each(0x01)
    encoded *= np.uint64(0x67)
    encoded += digits
    letters <<= np.uint64(5)
    encoded ^= marked | letters
    encoded |= digits & _each(0xF0)
    unusual = ((encoded != 0) | (lengths > 8)) & ~empty
    values, bad = _joined(digits), np.zeros_like(empty)
    values[empty] = 0
    for place, row in np.argwhere(unusual) if unusual.any() else ():
        found = _HEX.fullmatch(lines.text(row, fields[place]))
        bad[place, row] = found is None
        values[place, row] = int(found[1], 16) if found else 0
    return Keys(values, empty, bad)


def numbers(lines: Lines, fields: NDArray[np.int64]) -> Numbers:
    """The given fields of each row: whole numbers of any size, and any others."""
    starts, ends = lines.starts.T[fields], lines.ends.T[fields]
    empty = starts == ends
    negative = lines.data[starts] == ord("-")
    lengths = ends - starts - negative
    digits = _marked(lines, ends, lengths)
    usual = (((digits | (digits + _each(0x76))) & _each(0x80)) == 0) & (lengths >= 1) & (lengths <= 8)
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    whole = ((fours * np.uint64(10_000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)).astype(np.float64)
    values = np.where(negative, -whole, whole)
    values[empty] = np.nan
    bad, unusual = np.zeros_like(empty), ~usual & ~empty
    for place, row in np.argwhere(unusual) if unusual.any() else ():
        text = lines.text(row, fields[place]).strip(b" ")
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        bad[place, row] = not math.isfinite(value)
        values[place, row] = value if math.isfinite(value) else math.nan
    return Numbers(values, bad)


def _marked(lines: Lines, ends: NDArray[np.int64], lengths: NDArray[np.int64]) -> UInt64s:
    """The last 8 characters of each field, a digit as its value; of a shorter one, zeros come before them."""
    words = _windows(lines)[ends - 8] ^ _each(ord("0"))
    words &= _KEPT.take(lengths, mode="clip")
    return words


def _windows(lines: Lines) -> UInt64s:
    """The word at each byte of a block."""
    return np.ndarray(len(lines.data) - 7, dtype="<u8", buffer=lines.data, strides=(1,))


def _joined(digits: UInt64s) -> UInt64s:
    """From 8 hexadecimal digits, one to a byte and the first in the lowest, to their value. The input is used up."""
    joined = digits << np.uint64(4)
    digits >>= np.uint64(8)
    joined |= digits
    joined &= np.uint64(0x00FF00FF00FF00FF)
    for bits, kept in ((8, 0x0000FFFF0000FFFF), (16, 0xFFFFFFFF)):
        upper = joined << np.uint64(bits)
        joined >>= np.uint64(2 * bits)
        joined |= upper
        joined &= np.uint64(kept)
    return joined


def _each(byte: int) -> np.uint64:
    """The word that has this byte eight times."""
    return np.uint64(byte * 0x0101010101010101)
