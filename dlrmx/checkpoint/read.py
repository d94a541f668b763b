"""Reads a checkpoint's tensors in any slices, whatever the plan and the number of ranks that wrote it.

Only the bytes of the slices that are asked for are read, in blocks of rows straight into the caller's tensor, so that
a rank's memory holds its own part and one block. It runs no code that the files could bring: JSON and safetensors.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open

from dlrmx.checkpoint.manifest import CheckpointManifest, Entry, Json, TensorInfo
from dlrmx.checkpoint.verify import outline
from dlrmx.errors import InputError, Problem

BLOCK_BYTES = 16 << 20
MEAN_ROWS = 1 << 20
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CONVERTS = {(torch.float16, torch.float32), (torch.float32, torch.float16)}  # as a table's dtype may change
VERIFY = "`dlrmx checkpoints verify` says what is wrong with it"
Span = tuple[int, int]


def open_checkpoint(directory: Path) -> "Stored":
    """Open the checkpoint in `directory`. Raises InputError where its manifest or a file's size is not right.

    The checksums are not read again: `newest_good` and `checkpoints verify` do that, once and for all ranks.
    """
    manifest, found = outline(directory)
    if manifest is None or found:
        raise InputError([Problem(what, where=str(directory)) for what in found])
    return Stored(directory, manifest)


class Stored:
    """An open checkpoint. Files are opened as they are needed and closed with it: use it in a `with`."""

    def __init__(self, directory: Path, manifest: CheckpointManifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self._files: dict[str, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._files.clear()

    @property
    def state(self) -> dict[str, Json]:
        return dict(self.manifest.state)

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        return dict(self.manifest.tensors)

    def read(
        self, tensor: str, *, rows: Span | None = None, cols: Span | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Rows [rows[0], rows[1]) x columns [cols[0], cols[1]) of a tensor, bit by bit; None: all of them.

        Returns `out`, if given, filled: of shape (rows, cols), of any device and strides. fp16 and fp32 convert into
        each other, no other dtypes do. A per_row tensor gives (rows,): for each row the mean of the stored slices that
        overlap `cols`, weighted by how many of those columns each stands for; a single slice is passed on as it is.
        Raises InputError naming the tensor where it is missing, does not reach so far, or has another dtype.
        """
        info = self._info(tensor)
        rows, cols = self._within(tensor, rows, cols)
        shape = _shape(info, rows, cols)
        if out is None:
            out = torch.empty(shape, dtype=DTYPES[info.dtype])
        self._check(tensor, shape, out)
        if not info.shape:
            self._copy(tensor, out, self._part(tensor, info.entries[0])[...])
        elif info.per_row:
            self._fill_mean(tensor, rows, cols, out)
        else:
            self._fill(tensor, rows, cols, out)
        return out

    def _info(self, tensor: str) -> TensorInfo:
        if tensor not in self.manifest.tensors:
            hint = f"it holds {len(self.manifest.tensors)} tensors: `dlrmx checkpoints show` names them"
            raise InputError(f"{self.directory}: no tensor {tensor}", hint=hint)
        return self.manifest.tensors[tensor]

    def _within(self, tensor: str, rows: Span | None, cols: Span | None) -> tuple[Span, Span]:
        """The spans in full. For a per_row tensor, the columns are those of the table that its values stand for."""
        info = self.manifest.tensors[tensor]
        num_rows = info.shape[0] if info.shape else 1
        if info.per_row:
            num_cols = max((entry.cols[1] for entry in info.entries if entry.cols), default=0)
            cols = cols if num_cols else (0, 1)  # unsliced: the one value stands for whatever columns
            num_cols = num_cols or 1
        else:
            num_cols = math.prod(info.shape[1:])
        rows, cols = rows or (0, num_rows), cols or (0, num_cols)
        if not (0 <= rows[0] <= rows[1] <= num_rows and 0 <= cols[0] <= cols[1] <= num_cols):
            told = f"rows [{rows[0]}, {rows[1]}) columns [{cols[0]}, {cols[1]})"
            raise InputError(f"{self.directory}: {tensor}: {told} were asked for; it has {num_rows} x {num_cols}")
        return rows, cols

    def _check(self, tensor: str, shape: tuple[int, ...], out: torch.Tensor) -> None:
        if tuple(out.shape) != shape:
            raise InputError(f"{self.directory}: {tensor}: the slice has shape {list(shape)}, not {list(out.shape)}")
        stored = DTYPES[self.manifest.tensors[tensor].dtype]
        if out.dtype != stored and (stored, out.dtype) not in CONVERTS:
            raise InputError(f"{self.directory}: {tensor}: is {stored} and does not convert to {out.dtype}")

    def _fill(self, tensor: str, rows: Span, cols: Span, out: torch.Tensor) -> None:
        """Copy each stored rectangle's share of the slice. They leave no gap: a manifest with one is refused."""
        info = self.manifest.tensors[tensor]
        for entry in info.entries:
            inner: tuple[slice, ...] = ()
            outer: tuple[slice, ...] = ()
            if len(info.shape) == 2:
                held = entry.cols or (0, info.shape[1])
                shared = _overlap(cols, held)
                if shared[0] >= shared[1]:
                    continue
                inner, outer = (_slice(shared, held[0]),), (_slice(shared, cols[0]),)
            for span, block in self._blocks(tensor, entry, rows, inner):
                self._copy(tensor, out[(_slice(span, rows[0]), *outer)], block)

    def _fill_mean(self, tensor: str, rows: Span, cols: Span, out: torch.Tensor) -> None:
        """The mean over column slices, in fp64: a lone slice comes out with the bits it went in with."""
        for start in range(*rows, MEAN_ROWS):
            end = min(start + MEAN_ROWS, rows[1])
            total = torch.zeros(end - start, dtype=torch.float64)
            for entry in self.manifest.tensors[tensor].entries:
                first, last = _overlap(cols, entry.cols or cols)
                if first >= last:
                    continue
                for span, block in self._blocks(tensor, entry, (start, end), ()):
                    total[_slice(span, start)] += (last - first) * block.double()
            self._copy(tensor, out[_slice((start, end), rows[0])], total / (cols[1] - cols[0]))

    def _blocks(
        self, tensor: str, entry: Entry, rows: Span, cols: tuple[slice, ...]
    ) -> Iterator[tuple[Span, torch.Tensor]]:
        """The rows of an entry that lie in `rows`, block by block: which rows, and their values."""
        first, last = _overlap(rows, entry.rows)
        if first >= last:
            return
        part = self._part(tensor, entry)
        row_bytes = self.manifest.tensors[tensor].entry_bytes(entry) // (entry.rows[1] - entry.rows[0])
        num_rows = max(1, BLOCK_BYTES // max(1, row_bytes))
        for start in range(first, last, num_rows):
            span = (start, min(start + num_rows, last))
            yield span, part[(_slice(span, entry.rows[0]), *cols)]

    def _part(self, tensor: str, entry: Entry) -> Any:
        """An entry as safetensors' lazy slice: indexing it reads. Its file is opened once."""
        info = self.manifest.tensors[tensor]
        path = self.directory / entry.file
        try:
            if entry.file not in self._files:
                self._files[entry.file] = self._stack.enter_context(safe_open(path, framework="pt"))
            part = self._files[entry.file].get_slice(entry.key)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: {tensor}: {error}", hint=VERIFY) from error
        if (tuple(part.get_shape()), part.get_dtype()) != (info.extent(entry), info.dtype):
            raise InputError(f"{path}: {tensor}: shape or dtype is not the manifest's", hint=VERIFY)
        return part

    def _copy(self, tensor: str, target: torch.Tensor, block: torch.Tensor) -> None:
        target.copy_(block)
        if target.dtype == torch.float16 and block.dtype != torch.float16 and not _same_finite(target, block):
            raise InputError(f"{self.directory}: {tensor}: holds a value above 65504, the largest of fp16")


def _same_finite(target: torch.Tensor, block: torch.Tensor) -> bool:
    return torch.equal(target.isfinite().cpu(), block.isfinite().cpu())


def _shape(info: TensorInfo, rows: Span, cols: Span) -> tuple[int, ...]:
    if not info.shape:
        return ()
    rest = (cols[1] - cols[0],) if len(info.shape) == 2 else info.shape[1:]
    return (rows[1] - rows[0], *rest)


def _overlap(one: Span, other: Span) -> Span:
    return max(one[0], other[0]), min(one[1], other[1])


def _slice(span: Span, base: int) -> slice:
    return slice(span[0] - base, span[1] - base)
