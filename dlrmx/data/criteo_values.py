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


@dataclass(frozen=True)
class Keys:
    """Categories: (N, F) unsigned values; which fields are empty, and which are bad: no hexadecimal of 64 bits."""

    values: UInt64s
    empty: Bools
    bad: Bools


@dataclass(frozen=True)
class Numbers:
    """(N, F) float64, NaN where a field is empty or bad: no finite number."""

    values: NDArray[np.float64]
    bad: Bools


def hex_keys(lines: Lines, fields: NDArray[np.int64]) -> Keys:
    """The given fields of each row, as they are read in upper or lower case, with or without 0x."""
    starts, ends = lines.starts[:, fields], lines.ends[:, fields]
    lengths = ends - starts
    empty = lengths == 0
    words = _windows(lines)[ends - 8]
    full = lengths == 8
    if not full.all():
        words = _padded(words, lengths)
    letters = (words >> np.uint64(6)) & _each(0x01)
    digits = (words & _each(0x0F)) + letters * np.uint64(9)
    above_9 = ((digits + _each(0x06)) >> np.uint64(4)) & _each(0x01)
    encoded = digits + _each(0x30) + above_9 * np.uint64(0x27)
    usual = (encoded == (words | (letters << np.uint64(5)))) & ((digits & _each(0xF0)) == 0) & (lengths <= 8)
    values = _joined(digits)
    values[empty] = 0
    bad = np.zeros_like(empty)
    for row, place in np.argwhere(~usual & ~empty):
        found = _HEX.fullmatch(lines.text(row, fields[place]))
        bad[row, place] = found is None
        values[row, place] = int(found[1], 16) if found else 0
    return Keys(values, empty, bad)


def numbers(lines: Lines, fields: NDArray[np.int64]) -> Numbers:
    """The given fields of each row: whole numbers of any size, and any others."""
    starts, ends = lines.starts[:, fields], lines.ends[:, fields]
    empty = starts == ends
    negative = lines.data[starts] == ord("-")
    lengths = ends - starts - negative
    words = _padded(_windows(lines)[ends - 8], lengths)
    digits = words ^ _each(0x30)
    usual = (((digits | (digits + _each(0x76))) & _each(0x80)) == 0) & (lengths >= 1) & (lengths <= 8)
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    whole = (fours * np.uint64(10_000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    values = np.where(negative, -whole.astype(np.float64), whole.astype(np.float64))
    values[empty] = np.nan
    bad = np.zeros_like(empty)
    for row, place in np.argwhere(~usual & ~empty):
        text = lines.text(row, fields[place]).strip(b" ")
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        bad[row, place] = not math.isfinite(value)
        values[row, place] = math.nan if bad[row, place] else value
    return Numbers(values, bad)


def _windows(lines: Lines) -> UInt64s:
    """The word at each byte of a block."""
    return np.ndarray(len(lines.data) - 7, dtype="<u8", buffer=lines.data, strides=(1,))


def _padded(words: UInt64s, lengths: NDArray[np.int64]) -> UInt64s:
    """The last `lengths` characters of each word (at most 8), after as many zeros as fill it up."""
    before = np.clip(8 - lengths, 0, 8).astype(np.uint64) * np.uint64(8)
    # A shift by 64 is none: in two steps.
    kept = (np.uint64(2**64 - 1) << (before >> np.uint64(1))) << (before - (before >> np.uint64(1)))
    return np.asarray((words & kept) | (_each(0x30) & ~kept))


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
