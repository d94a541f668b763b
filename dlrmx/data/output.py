"""A file of prepared data, written once from begin to end, with its size and sum."""

import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.manifest import FileFacts


class OutputFile:
    """Opened at once; `facts` are of what was written so far."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.facts = FileFacts(0, 0)
        self._file = path.open("wb")

    def write(self, array: NDArray[np.generic]) -> None:
        self.write_bytes(np.ascontiguousarray(array).tobytes())

    def write_bytes(self, raw: bytes) -> None:
        self._file.write(raw)
        self.facts = FileFacts(self.facts.bytes + len(raw), zlib.crc32(raw, self.facts.crc32))

    def close(self) -> None:
        """On the disk, not only in its cache: the rename that publishes it may survive a power cut."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
