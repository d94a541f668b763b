"""manifest.json of a checkpoint: which tensors it holds, in which rectangles of which files, and the run's state.

No torch here: a laptop reads it. The manifest is JSON, and it carries a crc32 of itself, so that a flipped digit in
the data position is found as surely as one in a table.

    {"crc32": ..., "manifest": {"step": ..., "attempt": ..., "state": {...}, "parent": null, "format": 1,
     "files": {"rank-0000.safetensors": {"bytes": ..., "header_bytes": ..., "header_crc32": ...}},
     "tensors": {"table/user/weight": {"shape": [1000, 64], "dtype": "F32", "per_row": false,
                 "entries": [{"file": ..., "key": ..., "rows": [0, 500], "cols": null, "crc32": ...}]}}}}
"""

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlrmx.errors import InputError

FORMAT = 1
MANIFEST = "manifest.json"

# A state is whatever JSON holds: step, epoch, row, plan, fingerprint, metrics, versions.
Json = None | bool | int | float | str | list[Any] | dict[str, Any]

# safetensors' names of the dtypes that a checkpoint may hold, and their width.
ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class Entry:
    """One rectangle of a tensor: rows [rows[0], rows[1]) x columns [cols[0], cols[1]), under `key` in `file`.

    cols is None where the entry is as wide as the tensor. crc32 is that of the stored bytes.
    """

    file: str
    key: str
    rows: tuple[int, int]
    cols: tuple[int, int] | None
    crc32: int


@dataclass(frozen=True)
class TensorInfo:
    """A whole tensor: global shape, dtype by safetensors' name, and the rectangles that make it up.

    per_row: one value per row that stands for the columns `cols` of its table, as row-wise sums under column slices;
    shape is then (rows,) and several entries may hold the same rows, each for its own columns.
    """

    shape: tuple[int, ...]
    dtype: str
    per_row: bool
    entries: tuple[Entry, ...]

    def extent(self, entry: Entry) -> tuple[int, ...]:
        """The shape that an entry has in its file."""
        if not self.shape:
            return ()
        cols = None if self.per_row else entry.cols
        rest = self.shape[1:] if cols is None else (cols[1] - cols[0],)
        return (entry.rows[1] - entry.rows[0], *rest)

    def entry_bytes(self, entry: Entry) -> int:
        return math.prod(self.extent(entry)) * ITEM_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        return sum(self.entry_bytes(entry) for entry in self.entries)


@dataclass(frozen=True)
class FileInfo:
    """One safetensors file: its size, and that and the crc32 of its header (the 8 length bytes included)."""

    bytes: int
    header_bytes: int
    header_crc32: int


@dataclass(frozen=True)
class CheckpointManifest:
    """Everything about a checkpoint but the numbers themselves."""

    step: int
    attempt: int
    state: Mapping[str, Json]
    files: Mapping[str, FileInfo]
    tensors: Mapping[str, TensorInfo]
    parent: None = None
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        """Bytes of the tensor files."""
        return sum(file.bytes for file in self.files.values())

    @property
    def metrics(self) -> dict[str, float]:
        """state["metrics"], e.g. {"validation.ne": 0.81}: what `best` is chosen by; empty before an evaluation."""
        metrics = self.state.get("metrics")
        if not isinstance(metrics, dict):
            return {}
        return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}


def to_json(manifest: CheckpointManifest) -> str:
    """The text of manifest.json, a line per tensor. Raises ValueError where the state holds a NaN or infinity."""
    body = json.loads(json.dumps(asdict(manifest), allow_nan=False))
    crc32 = _crc32(body)
    tensors = ",\n".join(f"{json.dumps(name)}: {json.dumps(tensor)}" for name, tensor in body.pop("tensors").items())
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in body.items()]
    return f'{{"crc32": {crc32}, "manifest": {{\n' + ",\n".join([*parts, f'"tensors": {{\n{tensors}\n}}']) + "\n}}\n"


def from_json(text: str) -> CheckpointManifest:
    """Read `to_json`'s form. Raises ValueError where it is none, is damaged, or is of another format."""
    try:
        raw = json.loads(text)
        body = raw["manifest"]
        if body["format"] != FORMAT:
            raise ValueError(f"checkpoint format {body['format']!r}; this dlrmx reads {FORMAT}")
        if _crc32(body) != raw["crc32"]:
            raise ValueError("its checksum does not match")
        files = {_bare(name): FileInfo(**file) for name, file in body["files"].items()}
        tensors = {name: tensor_from(tensor) for name, tensor in body["tensors"].items()}
        return CheckpointManifest(**{**body, "files": files, "tensors": tensors})
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a manifest of dlrmx ({type(error).__name__}: {error})") from error


def write_manifest(directory: Path, manifest: CheckpointManifest) -> None:
    """Put manifest.json into `directory`, on the disk when this returns. Raises OSError."""
    with (directory / MANIFEST).open("w", encoding="utf-8") as file:
        file.write(to_json(manifest))
        file.flush()
        os.fsync(file.fileno())


def read_manifest(directory: Path) -> CheckpointManifest:
    """The manifest of the checkpoint in `directory`. Raises InputError where it is missing, damaged or foreign."""
    path = directory / MANIFEST
    hint = "`dlrmx checkpoints list` names the checkpoints of a run, `dlrmx checkpoints verify` what is wrong with them"
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = f"not a checkpoint: it has no {MANIFEST}" if directory.is_dir() else "no such checkpoint"
        raise InputError(f"{directory}: {what}", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: {reason}", hint=hint) from error


def uncovered(tensor: TensorInfo) -> str:
    """Why the entries do not make up the tensor, each element once; empty if they do.

    For a per_row tensor the elements are those of its table that the values stand for, and the table is as wide as
    the widest entry says.
    """
    rows = tensor.shape[0] if tensor.shape else 1
    boxes = sorted(_box(tensor, entry) for entry in tensor.entries)
    width = max((box[3] for box in boxes), default=1) if tensor.per_row else math.prod(tensor.shape[1:])
    for row_start, row_end, col_start, col_end in boxes:
        if not (0 <= row_start <= row_end <= rows and 0 <= col_start <= col_end <= width):
            return f"rows [{row_start}, {row_end}) columns [{col_start}, {col_end}) are not within {rows} x {width}"
    # Parts of the same area as the whole, within it and apart from each other, cover it.
    found = sum((row_end - row_start) * (col_end - col_start) for row_start, row_end, col_start, col_end in boxes)
    return _first_overlap(boxes) or ("" if found == rows * width else f"{found} of {rows} x {width} elements are there")


def _box(tensor: TensorInfo, entry: Entry) -> tuple[int, int, int, int]:
    """(row_start, row_end, col_start, col_end); further dims count as columns, a scalar as one row of one column."""
    if not tensor.shape:
        return (0, 1, 0, 1)
    whole = (0, 1) if tensor.per_row else (0, math.prod(tensor.shape[1:]))
    return (*entry.rows, *(whole if entry.cols is None else entry.cols))


def _first_overlap(boxes: list[tuple[int, int, int, int]]) -> str:
    """Two of `boxes`, which are sorted by their first row, that share an element; empty if there are none."""
    for index, (row_start, row_end, col_start, col_end) in enumerate(boxes):
        for following in range(index + 1, len(boxes)):
            other_start, other_end, other_left, other_right = boxes[following]
            if other_start >= row_end:
                break  # so are all that follow
            if other_left < col_end and col_start < other_right:
                return f"rows [{row_start}, {row_end}) and [{other_start}, {other_end}) overlap"
    return ""


def _bare(file: str) -> str:
    """A stranger's manifest must not name files elsewhere."""
    if not file or Path(file).name != file:
        raise ValueError(f"file name {file!r}")
    return file


def tensor_from(raw: dict[str, Any]) -> TensorInfo:
    """A TensorInfo from what `asdict` made of it. Raises ValueError (also KeyError, TypeError) where it is none."""
    if raw["dtype"] not in ITEM_BYTES:
        raise ValueError(f"unknown dtype {raw['dtype']!r}")
    entries = tuple(_entry_from(entry) for entry in raw["entries"])
    return TensorInfo(shape=tuple(raw["shape"]), dtype=raw["dtype"], per_row=raw["per_row"], entries=entries)


def _entry_from(raw: dict[str, Any]) -> Entry:
    row_start, row_end = raw["rows"]
    cols = None if raw["cols"] is None else (raw["cols"][0], raw["cols"][1])
    return Entry(file=_bare(raw["file"]), key=raw["key"], rows=(row_start, row_end), cols=cols, crc32=raw["crc32"])


def _crc32(body: dict[str, Any]) -> int:
    """Of one fixed spelling, so that blanks and the order of keys do not matter."""
    return zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
