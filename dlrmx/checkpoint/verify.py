"""Finds what is wrong with a checkpoint, by name: missing, short, flipped, foreign, left over. No torch."""

import json
import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from dlrmx.checkpoint.manifest import (
    MANIFEST,
    CheckpointManifest,
    Entry,
    FileInfo,
    TensorInfo,
    from_json,
    read_manifest,
    uncovered,
)
from dlrmx.runs.layout import LEFTOVER_DIR, STEP_DIR

BLOCK_BYTES = 4 << 20
THREADS = 4  # zlib and the disk work outside the interpreter's lock


def problems(directory: Path) -> list[str]:
    """All that makes the checkpoint unfit to resume from; empty if it is good. Reads every byte of it, in blocks."""
    manifest, found = outline(directory)
    if manifest is None or found:
        return found
    parts: dict[str, list[tuple[str, TensorInfo, Entry]]] = defaultdict(list)
    for name, tensor in manifest.tensors.items():
        for entry in tensor.entries:
            parts[entry.file].append((name, tensor, entry))
    with ThreadPoolExecutor(THREADS) as pool:
        each = pool.map(lambda file: _content(directory / file, manifest.files[file], parts[file]), manifest.files)
        return [problem for problems_of_file in each for problem in problems_of_file]


def outline(directory: Path) -> tuple[CheckpointManifest | None, list[str]]:
    """The manifest, if there is a sound one, and what it and the files' sizes show to be wrong. Reads no tensors."""
    leftover = LEFTOVER_DIR.match(directory.name)
    if leftover and not leftover[3]:
        return None, [f"left over: attempt {int(leftover[2])} began to save step {int(leftover[1])} and did not finish"]
    if not directory.is_dir():
        return None, ["foreign: not a directory" if directory.exists() else "missing"]
    try:
        manifest = from_json((directory / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, [f"foreign: no {MANIFEST}"]
    except OSError as error:
        return None, [f"{MANIFEST}: {error.strerror}"]
    except ValueError as error:
        return None, [f"{MANIFEST}: {error}"]
    found = [] if _step_in_name(directory) in (None, manifest.step) else [f"holds step {manifest.step} by its manifest"]
    for file, info in manifest.files.items():
        found += _size_problem(directory / file, info)
    for name, tensor in manifest.tensors.items():
        unknown = sorted({entry.file for entry in tensor.entries} - manifest.files.keys())
        found += [f"{name}: lies in {file}, which {MANIFEST} does not list" for file in unknown]
        gap = uncovered(tensor)
        found += [f"{name}: {gap}"] if gap else []
    return manifest, found


def strangers(directory: Path) -> list[str]:
    """Files in a checkpoint that its manifest does not name. They do no harm, and are not ours to count as damage."""
    manifest = read_manifest(directory)
    known = {MANIFEST, *manifest.files}
    return sorted(path.name for path in directory.iterdir() if path.name not in known)


def _step_in_name(directory: Path) -> int | None:
    match = STEP_DIR.match(directory.name)
    return int(match[1]) if match else None


def _size_problem(path: Path, info: FileInfo) -> list[str]:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return [f"{path.name}: missing"]
    except OSError as error:
        return [f"{path.name}: {error.strerror}"]
    if size < info.bytes:
        return [f"{path.name}: short: {size} of {info.bytes} bytes"]
    if size > info.bytes:
        return [f"{path.name}: {size} bytes, {size - info.bytes} more than were written"]
    return []


def _content(path: Path, info: FileInfo, parts: list[tuple[str, TensorInfo, Entry]]) -> list[str]:
    """Check the checksums of one file: the header's, then each rectangle's where the header says it lies."""
    found = []
    try:
        with path.open("rb") as file:
            head = file.read(info.header_bytes)
            if zlib.crc32(head) != info.header_crc32:
                return [f"{path.name}: header: the checksum does not match"]
            header = json.loads(head[8:])
            for name, tensor, entry in parts:
                what = _entry_problem(file, header, info.header_bytes, tensor, entry)
                found += [f"{path.name}: {name} {_place(entry)}: {what}"] if what else []
    except OSError as error:
        found.append(f"{path.name}: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found.append(f"{path.name}: header: not one of safetensors ({error})")
    return found


def _entry_problem(file: BinaryIO, header: dict[str, Any], base: int, tensor: TensorInfo, entry: Entry) -> str:
    stored = header.get(entry.key)
    if stored is None:
        return "missing"
    start, end = stored["data_offsets"]
    told = (list(tensor.extent(entry)), tensor.dtype, tensor.entry_bytes(entry))
    if (stored["shape"], stored["dtype"], end - start) != told:
        return "shape or dtype is not the manifest's"
    file.seek(base + start)
    return "" if _crc32(file, end - start) == entry.crc32 else "the checksum does not match"


def _crc32(file: BinaryIO, count: int) -> int:
    """Of the next `count` bytes, read in blocks; of as many as there are where the file ends before."""
    crc32 = 0
    while count > 0 and (block := file.read(min(BLOCK_BYTES, count))):
        crc32 = zlib.crc32(block, crc32)
        count -= len(block)
    return crc32


def _place(entry: Entry) -> str:
    rows = f"rows [{entry.rows[0]}, {entry.rows[1]})"
    return rows if entry.cols is None else f"{rows} columns [{entry.cols[0]}, {entry.cols[1]})"
