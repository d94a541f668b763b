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

# So many rows are decoded at a time: what is made of them stays in the second cache, in half the time of a whole block.
CHUNK = 512


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
    shape = len(fields), len(lines.numbers)
    keys = Keys(np.empty(shape, dtype=np.uint64), np.empty(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_))
    for first in range(0, shape[1], CHUNK):
        rows = slice(first, first + CHUNK)
        keys.values[:, rows], keys.empty[:, rows], unusual = _usual_keys(lines, rows, fields)
        for row, place in np.argwhere(unusual):
            found = _HEX.fullmatch(lines.text(first + row, fields[place]))
            keys.bad[place, first + row] = found is None
            keys.values[place, first + row] = int(found[1], 16) if found else 0
    return keys


def _usual_keys(lines: Lines, rows: slice, fields: NDArray[np.int64]) -> tuple[UInt64s, Bools, Bools]:
    """Of some rows: (F, n) values and which are empty; (n, F) which are neither empty nor usual."""
    starts, ends = lines.starts[rows][:, fields], lines.ends[rows][:, fields]
    lengths = ends - starts
    empty = lengths == 0
    marked = _marked(lines, ends, lengths)
    letters = (marked >> np.uint64(6)) & _each(0x01)
    digits = (marked & _each(0x0F)) + letters * np.uint64(9)
    above_9 = ((digits + _each(0x06)) >> np.uint64(4)) & _each(0x01)
    encoded = digits + above_9 * np.uint64(0x67)
    wrong = (encoded ^ (marked | (letters << np.uint64(5)))) | (digits & _each(0xF0))
    values = _joined(digits)
    values[empty] = 0
    return values.T, empty.T, ((wrong != 0) | (lengths > 8)) & ~empty


def numbers(lines: Lines, fields: NDArray[np.int64]) -> Numbers:
    """The given fields of each row: whole numbers of any size, and any others."""
    shape = len(fields), len(lines.numbers)
    found = Numbers(np.empty(shape), np.zeros(shape, dtype=np.bool_))
    for first in range(0, shape[1], CHUNK):
        rows = slice(first, first + CHUNK)
        found.values[:, rows], unusual = _usual_numbers(lines, rows, fields)
        for row, place in np.argwhere(unusual):
            text = lines.text(first + row, fields[place]).strip(b" ")
            value = float(text) if _NUMBER.fullmatch(text) else math.nan
            found.bad[place, first + row] = not math.isfinite(value)
            found.values[place, first + row] = value if math.isfinite(value) else math.nan
    return found


def _usual_numbers(lines: Lines, rows: slice, fields: NDArray[np.int64]) -> tuple[NDArray[np.float64], Bools]:
    """Of some rows: (F, n) values, NaN where empty; (n, F) which are neither empty nor usual."""
    starts, ends = lines.starts[rows][:, fields], lines.ends[rows][:, fields]
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
    return values.T, ~usual & ~empty


def _marked(lines: Lines, ends: NDArray[np.int64], lengths: NDArray[np.int64]) -> UInt64s:
    """The last 8 characters of each field, a digit as its value; of a shorter one, zeros come before them."""
    words = _windows(lines)[ends - 8] ^ _each(ord("0"))
    words &= _KEPT.take(lengths, mode="clip")
    return words


def _windows(lines: Lines) -> UInt64s:
    """The word at each byte of a block."""
    return np.ndarray(len(lines.data) - 7, dtype="<u8", buffer=lines.data, strides=(1,))


def _joined(digits: UInt64s) -> UInt64s:
    """From 8 hexadecimal digits, one to a byte and the first in the lowest, to their value."""
    pairs = ((digits & np.uint64(0x000F000F000F000F)) << np.uint64(4)) | (
        (digits >> np.uint64(8)) & np.uint64(0x000F000F000F000F)
    )
    fours = ((pairs & np.uint64(0x000000FF000000FF)) << np.uint64(8)) | (
        (pairs >> np.uint64(16)) & np.uint64(0x000000FF000000FF)
    )
    return ((fours & np.uint64(0xFFFF)) << np.uint64(16)) | ((fours >> np.uint64(32)) & np.uint64(0xFFFF))


def _each(byte: int) -> np.uint64:
    """The word that has this byte eight times."""
    return np.uint64(byte * 0x0101010101010101)
