"""How often the rows of a table are looked up: one count a row up to 2**21 rows; of larger tables, of the first 2**21.

Ids are permuted, so that the first rows are a fair sample of all. Of a larger table, the look-ups of each of 64 ranges
are counted too, and its different rows: exactly up to 2**24 rows, above that by linear counting. All counts add up, so
that they do not depend on how the work was cut.
"""

import io
import math

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.manifest import HISTOGRAM

# So many rows have a count each: 16 MiB.
COUNTED_ROWS = 2**21
# Up to so many rows, the different ids of a table are counted exactly.
EXACT_ROWS = 2**24

Int64s = NDArray[np.int64]


class Lookups:
    """The look-ups in one table of `rows` rows, so far. `counts`: those of its first rows, one by one."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.counts: Int64s = np.zeros(min(rows, COUNTED_ROWS), dtype=np.int64)
        large = rows > COUNTED_ROWS
        self._ranges: Int64s = np.zeros(HISTOGRAM if large else 0, dtype=np.int64)
        self._met = np.zeros(min(rows, EXACT_ROWS) if large else 0, dtype=np.bool_)

    def add(self, ids: Int64s) -> None:
        """Each in [0, rows)."""
        if len(self._met):
            self._met[ids if self._rows <= EXACT_ROWS else ids % EXACT_ROWS] = True
            self._ranges += np.bincount(ids * HISTOGRAM // self._rows, minlength=HISTOGRAM)
            ids = ids[ids < COUNTED_ROWS]
        np.add.at(self.counts, ids, 1)

    def to_bytes(self) -> bytes:
        """For a file: the rows that were looked up, and how often; ranges and bits of a large table."""
        rows = np.flatnonzero(self.counts)
        file = io.BytesIO()
        for array in (rows.astype("<i4"), self.counts[rows].astype("<i8"), self._ranges, np.packbits(self._met)):
            np.save(file, array)
        return file.getvalue()

    def join(self, raw: bytes) -> None:
        """Add what another one of the same table wrote by `to_bytes`."""
        file = io.BytesIO(raw)
        rows, counts, ranges, bits = (np.load(file) for _ in range(4))
        self.counts[rows] += counts
        self._ranges += ranges
        self._met |= np.unpackbits(bits, count=len(self._met)).view(np.bool_)

    @property
    def histogram(self) -> Int64s:
        """Look-ups in each of 64 equal ranges of the rows: range k holds the ids with id * 64 // rows == k."""
        if len(self._met):
            return self._ranges
        met = np.flatnonzero(self.counts)
        ranges = np.zeros(HISTOGRAM, dtype=np.int64)
        np.add.at(ranges, met * HISTOGRAM // self._rows, self.counts[met])
        return ranges

    @property
    def distinct(self) -> int:
        """How many different rows; an estimate for tables of more than EXACT_ROWS rows."""
        met = int(np.count_nonzero(self._met if len(self._met) else self.counts))
        if self._rows <= EXACT_ROWS:
            return met
        # Linear counting (Whang et al. 1990): the ids are spread evenly, so the free share of m slots is exp(-n / m).
        return round(EXACT_ROWS * math.log(EXACT_ROWS / max(EXACT_ROWS - met, 1)))
