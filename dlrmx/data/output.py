"""Files of prepared data, written once from begin to end, with their size and sum; results that come by a rename."""

import errno
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def aside(target: Path) -> Iterator[Path]:
    """A path to write to, that becomes `target`; another process's result is as good as ours."""
    path = target.parent / f".{target.name}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        yield path
        path.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    finally:
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            path.unlink()


def sync(path: Path) -> None:
    """A file, or the files in a folder, to the disk: the rename that publishes them may survive a power cut."""
    for file in path.iterdir() if path.is_dir() else [path]:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def look_afresh(folder: Path) -> None:
    """See what is in a folder now: NFS believes what it saw last for up to a minute, unless we change something."""
    probe = folder / f".look-{secrets.token_hex(4)}"
    with suppress(OSError):
        probe.mkdir()
        probe.rmdir()
