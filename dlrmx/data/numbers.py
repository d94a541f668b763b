"""Ids of a table from whole numbers: themselves or their remainder, and what becomes of values that are none.

Row 0 is for missing values, as in vocabulary.py. identity: 1 + value, so the values 0 to rows - 2 fit. modulo:
1 + value % (rows - 1), of any unsigned 64-bit value. A value that does not fit is bad: the table's `bad_ids` says
whether its row is bad (fail), it becomes the nearest that fits, 0 for what is no number (clamp), or it is hashed.
"""

import re
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dlrmx.data.hashing import hash_texts
from dlrmx.data.permute import permute_ids
from dlrmx.data.vocabulary import Found

BadIds = Literal["fail", "clamp", "hash"]

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


class NumberLookup:
    """Ids of whole numbers in a table of at least 2 rows."""

    def __init__(self, rows: int, kind: Literal["identity", "modulo"], bad_ids: BadIds) -> None:
        self._rows, self._kind, self._bad_ids = rows, kind, bad_ids
        self._most = rows - 2 if kind == "identity" else 2**64 - 1

    def ids(self, texts: pa.Array) -> Found:
        values, bad = self._values(texts)
        plain = 1 + (values % np.uint64(self._rows - 1)).astype(np.int64)
        if self._bad_ids == "hash" and bad.any():
            hashes = hash_texts(texts.filter(pa.array(bad)))
            plain[bad] = 1 + (hashes % np.uint64(self._rows - 1)).astype(np.int64)
        return Found(permute_ids(plain, self._rows), np.zeros(len(texts), dtype=np.bool_), bad)

    def _values(self, texts: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Each text as a number that fits, and which do not."""
        try:
            parsed = texts.cast(pa.int64()).to_numpy(zero_copy_only=False)
            bad = (parsed < 0) | (parsed > self._most)
            return np.clip(parsed, 0, min(self._most, 2**63 - 1)).astype(np.uint64), bad
        except pa.ArrowInvalid:
            numbers = [int(text) if _WHOLE.fullmatch(text) else -1 for text in texts.to_pylist()]
            fitting = [min(max(number, 0), self._most) for number in numbers]
            bad = np.array([a != b for a, b in zip(numbers, fitting, strict=True)], dtype=np.bool_)
            return np.array(fitting, dtype=np.uint64), bad
