"""Saves a checkpoint from all ranks at once: written aside, agreed on by all, and published by a rename.

    .step-00001000.attempt-0002/    rank-0000.safetensors ... one file per rank, each fsynced
                                    manifest.json, last, once rank 0 has seen every file at its full size
    step-00001000/                  the same directory, renamed: this is the commit

After each of the three stages the ranks tell each other how it went, so that a full disk on one of them ends the save
on all, at the same place. The files are written by our own few lines, not by the safetensors package (which reads
them): row blocks, so that column slices and device tensors need no second copy, the checksum in the same pass, and an
OSError where the disk is full.
"""

import errno
import json
import os
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
import torch.distributed as dist

from dlrmx.checkpoint.manifest import (
    CheckpointManifest,
    Entry,
    FileInfo,
    Json,
    TensorInfo,
    tensor_from,
    uncovered,
)
from dlrmx.checkpoint.publish import Refused, commit, refuse_if_superseded, sync
from dlrmx.checkpoint.read import DTYPES
from dlrmx.errors import DlrmxError
from dlrmx.runs.layout import RunPaths

BLOCK_BYTES = 16 << 20
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class SaveError(DlrmxError):
    """A checkpoint could not be saved. Raised on all ranks together; `failures` says what stopped which rank."""

    def __init__(self, step: int, failures: Mapping[int, str]) -> None:
        first = "; ".join(f"rank {rank}: {failure}" for rank, failure in list(failures.items())[:3])
        more = f"; and {len(failures) - 3} more ranks" if len(failures) > 3 else ""
        what = f"the checkpoint of step {step} was not saved: {first}{more}"
        super().__init__(
            what, hint="the checkpoints before it are untouched; where a disk is full or read-only, put that right"
        )
        self.failures = dict(failures)


@dataclass(frozen=True, eq=False)
class Piece:
    """What one rank holds of one tensor: rows [rows[0], rows[1]) x columns [cols[0], cols[1]) of `shape`.

    cols None: all of its width. per_row: data is (rows,), one value per row that stands for the columns `cols` of the
    table. A whole tensor has rows (0, shape[0]); a scalar has shape () and rows (0, 1). A replicated tensor is given
    by one rank only: the pieces of all ranks make up the tensor, each element once.
    """

    tensor: str
    shape: tuple[int, ...]
    rows: tuple[int, int]
    cols: tuple[int, int] | None
    data: torch.Tensor
    per_row: bool = False

    def __post_init__(self) -> None:
        expected = self.info.extent(self.entry("", 0))
        assert tuple(self.data.shape) == expected, f"{self.tensor}: data {tuple(self.data.shape)}, piece {expected}"

    @property
    def info(self) -> TensorInfo:
        return TensorInfo(self.shape, DTYPE_NAMES[self.data.dtype], self.per_row, ())

    @property
    def key(self) -> str:
        """Its name within a file: pieces of one tensor need keys of their own."""
        if not self.shape or (self.rows == (0, self.shape[0]) and self.cols is None):
            return self.tensor
        rows = f"{self.tensor}@{self.rows[0]}:{self.rows[1]}"
        return rows if self.cols is None else f"{rows},{self.cols[0]}:{self.cols[1]}"

    def entry(self, file: str, crc32: int) -> Entry:
        return Entry(file, self.key, self.rows, self.cols, crc32)


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is on the disk: bytes of all ranks' tensor files, seconds from first to last act."""

    path: Path
    bytes: int
    seconds: float


def save(
    run: RunPaths,
    *,
    step: int,
    attempt: int,
    pieces: Sequence[Piece],
    state: Mapping[str, Json],
    group: dist.ProcessGroup | None,
    on_phase: Callable[[str], None],
) -> Saved:
    """Save what all ranks of `group` hold as the run's checkpoint of `step`. Collective.

    pieces: this rank's. state: JSON without NaN, rank 0's counts. group: one that moves CPU tensors (gloo) and carries
    nothing else meanwhile; None for a single process. on_phase hears "writing", "written" (all of it is on the disk
    under its passing name), "committed"; it must not raise. An earlier checkpoint of the same step is replaced. Raises
    SaveError on all ranks if the disk refuses on any; what was written is then removed.
    """
    began = time.monotonic()
    rank = 0 if group is None else dist.get_rank(group)
    partial = run.partial_checkpoint(step, attempt)
    file = partial / f"rank-{rank:04d}.safetensors"

    def publish() -> int | None:
        if rank == 0:
            return commit(run, _manifest(step, attempt, state, reports), on_phase)
        on_phase("written")
        return None

    on_phase("writing")
    try:
        _same_place(step, _on_all(group, step, partial, lambda: _begin(run, attempt, partial, rank)))
        reports = _on_all(group, step, file, lambda: _write_file(file, pieces))
        total_bytes = _on_all(group, step, partial, publish)[0]
    except SaveError:
        if rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    on_phase("committed")
    return Saved(run.checkpoint(step), total_bytes, time.monotonic() - began)


# ------------------------------------------------------------------------------------ all ranks


def _on_all(group: dist.ProcessGroup | None, step: int, place: Path, action: Callable[[], Any]) -> list[Any]:
    """What `action` returned (as JSON) on each rank, once it is done on all; SaveError on all if it failed on any."""
    try:
        answer = {"result": action()}
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        answer = {"failure": f"{error.filename or place}: {error.strerror} ({name})"}
    except Refused as error:
        answer = {"failure": str(error)}
    answers = [json.loads(text) for text in _gather(group, json.dumps(answer).encode())]
    failures = {rank: answer["failure"] for rank, answer in enumerate(answers) if "failure" in answer}
    if failures:
        raise SaveError(step, failures)
    return [answer["result"] for answer in answers]


def _gather(group: dist.ProcessGroup | None, data: bytes) -> list[bytes]:
    """Every rank's bytes, in rank order, by two all_gathers (all_gather_object would unpickle them)."""
    if group is None:
        return [data]
    world = dist.get_world_size(group)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(data)]), group=group)
    longest = int(max(sizes))
    texts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(world)]
    padded = torch.from_numpy(np.frombuffer(data.ljust(longest), dtype=np.uint8).copy())
    dist.all_gather(texts, padded, group=group)
    return [text.numpy().tobytes()[: int(size)] for text, size in zip(texts, sizes, strict=True)]


def _same_place(step: int, paths: list[str]) -> None:
    """Ranks that write to different folders would each leave a fragment."""
    failures = {rank: f"writes to {path}, rank 0 to {paths[0]}" for rank, path in enumerate(paths) if path != paths[0]}
    if failures:
        raise SaveError(step, failures)


# ------------------------------------------------------------------------------------ one rank


def _begin(run: RunPaths, attempt: int, partial: Path, rank: int) -> str:
    if rank == 0:
        refuse_if_superseded(run, attempt)
        run.checkpoints.mkdir(exist_ok=True)
        sync(run.dir)
        if partial.exists():
            shutil.rmtree(partial)  # this attempt's own: it tried to save this step before
        partial.mkdir()
    return str(partial)


def _write_file(path: Path, pieces: Sequence[Piece]) -> dict[str, Any]:
    """Write one rank's pieces and see them onto the disk. Returns FileInfo and TensorInfos in JSON's terms."""
    # Widest items first, as safetensors does it: then each tensor is aligned. Of an empty piece only the shape is kept.
    stored = sorted((piece for piece in pieces if piece.data.numel()), key=lambda piece: -piece.data.element_size())
    head = _header(stored)
    entries = []
    with path.open("wb") as file:
        file.write(head)
        for piece in stored:
            entries.append((piece, piece.entry(path.name, _write_data(file, piece.data))))
        file.flush()
        os.fsync(file.fileno())
    info = FileInfo(len(head) + sum(piece.data.nbytes for piece in stored), len(head), zlib.crc32(head))
    tensors = [(piece.tensor, piece.info) for piece in pieces]
    tensors += [(piece.tensor, replace(piece.info, entries=(entry,))) for piece, entry in entries]
    return {"name": path.name, "file": asdict(info), "tensors": [(name, asdict(tensor)) for name, tensor in tensors]}


def _header(pieces: Sequence[Piece]) -> bytes:
    """safetensors' header: its length in 8 bytes, then JSON, padded with blanks to a multiple of 8."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for piece in pieces:
        assert piece.key not in header, f"two pieces {piece.key}"
        end = offset + piece.data.nbytes
        header[piece.key] = {"dtype": piece.info.dtype, "shape": list(piece.data.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return struct.pack("<Q", len(text)) + text


def _write_data(file: BinaryIO, data: torch.Tensor) -> int:
    """Write a tensor's elements in row order; returns their crc32. A row block is all that is copied at a time."""
    crc32 = 0
    num_rows = max(1, BLOCK_BYTES * len(data) // data.nbytes) if data.ndim else 1
    for block in torch.split(data.detach(), num_rows) if data.ndim else (data.detach(),):
        content = block.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        crc32 = zlib.crc32(content, crc32)
        file.write(content)
    return crc32


# ------------------------------------------------------------------------------------ rank 0


def _manifest(step: int, attempt: int, state: Mapping[str, Json], reports: list[Any]) -> CheckpointManifest:
    """Join what the ranks report; their pieces must make up each tensor."""
    files = {report["name"]: FileInfo(**report["file"]) for report in reports}
    tensors: dict[str, TensorInfo] = {}
    parts: dict[str, list[Entry]] = {}
    for name, raw in (tensor for report in reports for tensor in report["tensors"]):
        part = tensor_from(raw)
        parts.setdefault(name, []).extend(part.entries)
        bare = replace(part, entries=())
        assert tensors.setdefault(name, bare) == bare, f"{name}: {tensors[name]} on one rank, {bare} on another"
    tensors = {name: replace(tensor, entries=tuple(parts[name])) for name, tensor in sorted(tensors.items())}
    for name, tensor in tensors.items():
        assert not uncovered(tensor), f"{name}: {uncovered(tensor)}"
    return CheckpointManifest(step=step, attempt=attempt, state=state, files=files, tensors=tensors)
