"""Which rows of a table were met, one bit each: counted exactly up to 2**24 rows, above that by linear counting."""

import math
import zlib

import numpy as np
from numpy.typing import NDArray

# Up to so many rows, the different ids of a table are counted exactly.
EXACT_ROWS = 2**24


class Met:
    """The rows of a table that were met so far."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._met = np.zeros(min(rows, EXACT_ROWS), dtype=np.bool_)

    def add(self, ids: NDArray[np.int64]) -> None:
        """Each in [0, rows)."""
        self._met[ids if self._rows <= EXACT_ROWS else ids % EXACT_ROWS] = True

    def to_bytes(self) -> bytes:
        """For a file: compressed bits."""
        return zlib.compress(np.packbits(self._met).tobytes(), 1)

    def join(self, raw: bytes) -> None:
        """Add what another one of the same table wrote by `to_bytes`."""
        bits = np.frombuffer(zlib.decompress(raw), dtype=np.uint8)
        self._met |= np.unpackbits(bits, count=len(self._met)).view(np.bool_)

    @property
    def distinct(self) -> int:
        """How many different rows; an estimate for tables of more than EXACT_ROWS rows."""
        met = int(self._met.sum())
        if self._rows <= EXACT_ROWS:
            return met
        # Linear counting (Whang et al. 1990): the ids are spread evenly, so the free share of m slots is exp(-n / m).
        return round(EXACT_ROWS * math.log(EXACT_ROWS / max(EXACT_ROWS - met, 1)))
