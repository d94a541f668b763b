"""Keyed bijections of [0, size) ("feistel-v1"): they spread ids over a table's rows, and shuffle the order of samples.

x < size has `bits` = (size - 1).bit_length() bits: the low ceil(bits / 2) are r, the others l. Rounds 0 to 5 in turn,
even ones l ^= F(r), odd ones r ^= F(l), where F(h) is mix64(h + key + (round + 1) * 0x9E3779B97F4A7C15) >> 32, cut to
the width of its target. A result that is not below size goes through the rounds again (cycle walking), less than twice
on average. So a position is mapped alone: nothing is stored, and a rank computes its own rows only.
"""

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.hashing import GOLDEN, MASK64, mix64

PERMUTATION = "feistel-v1"
ROUNDS = 6
# The bijection of ids depends on the number of rows alone, so that undoing it needs nothing else.
TABLE_KEY = 0

Int64s = NDArray[np.int64]


def permute_ids(ids: Int64s, rows: int) -> Int64s:
    """Where the ids (each in [0, rows)) lie in their table of `rows` rows: a fixed bijection."""
    return permute(ids, rows, TABLE_KEY)


def restore_ids(ids: NDArray[np.integer], rows: int) -> Int64s:
    """The inverse of `permute_ids`."""
    return permute(ids, rows, TABLE_KEY, inverse=True)


def permute(values: NDArray[np.integer], size: int, key: int, *, inverse: bool = False) -> Int64s:
    """The image of each value (in [0, size)) under the bijection of `key`, or its inverse; same shape as `values`."""
    bits = (size - 1).bit_length()
    rounds = range(ROUNDS - 1, -1, -1) if inverse else range(ROUNDS)
    shuffled = _walk(values.astype(np.uint64).ravel(), bits, key, rounds)
    outside = np.flatnonzero(shuffled >= np.uint64(size)) if size != 1 << bits else np.zeros(0, dtype=np.int64)
    while len(outside):
        shuffled[outside] = _walk(shuffled[outside], bits, key, rounds)
        outside = outside[shuffled[outside] >= np.uint64(size)]
    return shuffled.astype(np.int64).reshape(values.shape)


def _walk(values: NDArray[np.uint64], bits: int, key: int, rounds: range) -> NDArray[np.uint64]:
    """One pass of the rounds over values of `bits` bits."""
    left_bits, right_bits = bits // 2, bits - bits // 2
    left, right = values >> np.uint64(right_bits), values & np.uint64((1 << right_bits) - 1)
    for number in rounds:
        constant = (key + (number + 1) * GOLDEN) & MASK64
        if number % 2 == 0:
            left ^= _scramble(right, right_bits, constant) & np.uint64((1 << left_bits) - 1)
        else:
            right ^= _scramble(left, left_bits, constant) & np.uint64((1 << right_bits) - 1)
    return (left << np.uint64(right_bits)) | right


def _scramble(halves: NDArray[np.uint64], bits: int, constant: int) -> NDArray[np.uint64]:
    """F of each half of `bits` bits. Where halves outnumber the values they can have, F is computed once per value."""
    if len(halves) > 1 << bits:
        every = np.arange(1 << bits, dtype=np.uint64)
        return _scramble(every, bits, constant)[halves.astype(np.intp)]
    return mix64(halves + np.uint64(constant)) >> np.uint64(32)
