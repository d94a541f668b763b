"""Criteo's layout at full speed: `dlrmx data prepare` on a generated file, beside a bare scan of it by pyarrow.

    .venv/bin/python benchmarks/criteo.py [ROWS] [FOLDER]

The file (5 million rows, 1.2 GB unless said otherwise) has the Kaggle set's cardinalities, capped at a million, and
blanks at the rates of its public sample. It is made in FOLDER (default: a temporary one) and kept if it was there.
Prints rows/s of the scan, and of preparation with hashed ids and with vocabularies; their ratios, also of processor
time, which other programs on the machine disturb less; the memory of all processes together at peak.
"""

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as csv
from numpy.typing import NDArray

DLRMX = str(Path(sys.executable).with_name("dlrmx"))
CARDINALITIES = [
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
]
CAP = 1_000_000
BLANKS = [
    *(0.45, 0, 0.17, 0.175, 0.03, 0.255, 0.05, 0, 0.05, 0.45, 0.05, 0.785, 0.175),
    *(0, 0, 0.045, 0.045, 0, 0.16, 0, 0, 0, 0, 0, 0.045, 0),
    *(0, 0, 0.045, 0, 0, 0.41, 0.41, 0.045, 0.795, 0, 0.045, 0.41, 0.41),
]
BLOCK = 100_000


def generate(path: Path, rows: int) -> None:
    """Write the file: categories are skewed, integers heavy-tailed, a quarter of the labels 1."""
    with path.open("wb") as file:
        for first in range(0, rows, BLOCK):
            random = np.random.default_rng(first)
            file.write(_block(random, min(BLOCK, rows - first)))


def _block(random: np.random.Generator, rows: int) -> bytes:
    label = pa.array((random.random(rows) < 0.25).astype(np.int8)).cast(pa.string())
    integers = [_texts((random.pareto(0.7, rows) * 3).astype(np.int64).clip(0, 90_000)) for _ in range(13)]
    categories = [_hex(random, min(count, CAP), rows) for count in CARDINALITIES]
    columns = [label]
    for column, rate in zip([*integers, *categories], BLANKS, strict=True):
        columns.append(compute.if_else(pa.array(random.random(rows) < rate), "", column))
    lines = compute.binary_join_element_wise(*columns, "\t").to_pylist()
    return ("\n".join(lines) + "\n").encode()


def _texts(numbers: NDArray[np.int64]) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _hex(random: np.random.Generator, cardinality: int, rows: int) -> pa.Array:
    """Values as 8 hexadecimal digits; the k-th most frequent of n is drawn with a density of about 1 / k ** (2 / 3)."""
    ranks = (cardinality * random.random(rows) ** 3).astype(np.uint64)
    values = (ranks * np.uint64(0x9E3779B1) + np.uint64(cardinality)) & np.uint64(0xFFFFFFFF)
    nibbles = (values[:, None] >> np.arange(28, -1, -4, dtype=np.uint64)) & np.uint64(15)
    text = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[nibbles]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), rows, [None, pa.py_buffer(text.tobytes())]).cast(
        pa.string()
    )


@dataclass(frozen=True)
class Cost:
    """Wall and processor time in seconds."""

    wall: float
    cpu: float


def scan(path: Path) -> Cost:
    """What it takes pyarrow, on all cores, to read every field as text."""
    began, cpu = time.perf_counter(), time.process_time()
    names = [str(number) for number in range(40)]
    types = dict.fromkeys(names, pa.string())
    with csv.open_csv(
        path,
        read_options=csv.ReadOptions(column_names=names, block_size=8 << 20),
        parse_options=csv.ParseOptions(delimiter="\t"),
        convert_options=csv.ConvertOptions(column_types=types),
    ) as reader:
        for _ in reader:
            pass
    return Cost(time.perf_counter() - began, time.process_time() - cpu)


def recipe(path: Path, ids: str) -> str:
    features = "".join(f"  C{number}: {{}}\n" for number in range(1, 27))
    tables = "".join(f"  C{number}: {{rows: {min(count, CAP) + 2}}}\n" for number, count in enumerate(CARDINALITIES, 1))
    return (
        f"dlrmx: 1\ndata: {{kind: criteo, files: ['{path}']}}\n"
        + "dense:\n"
        + "".join(f"  I{number}: {{transform: log1p}}\n" for number in range(1, 14))
        + f"defaults: {{feature: {{ids: {ids}}}, table: {{dim: 16}}}}\nfeatures:\n{features}tables:\n{tables}"
        + "model: {kind: dlrm, bottom: [64, 16], top: [64, 1]}\n"
        + "optimizer: {dense: {kind: sgd, lr: 0.1}, sparse: {kind: sgd, lr: 0.1}}\n"
        + "train: {batch: 2048, stop: {epochs: 1}}\n"
    )


class Memory:
    """The memory at peak of a process and all its descendants together, seen ten times a second while a thread runs.

    PSS: what several processes share counts once. Pages of files that are mapped count, cached ones that are not don't.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = self.processes = 0
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            sizes = [_pss_bytes(pid) for pid in _family(self._pid)]
            if sum(sizes) > self.peak_bytes:
                self.peak_bytes, self.processes = sum(sizes), len(sizes)


def _family(pid: int) -> list[int]:
    """A process and its descendants, as they are now."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def prepare(path: Path, ids: str) -> tuple[Cost, Memory]:
    """What `dlrmx data prepare` takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        file = Path(folder) / "speed.yaml"
        file.write_text(recipe(path, ids))
        began = time.perf_counter()
        with subprocess.Popen([DLRMX, "data", "prepare", str(file), "-s", f"cluster.root={folder}"]) as process:
            with Memory(process.pid) as memory:
                code = process.wait()
        seconds = time.perf_counter() - began
        if code:
            raise SystemExit(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, cpu), memory


def main(rows: int, folder: Path) -> None:
    path = folder / f"criteo-{rows}.tsv"
    if not path.exists():
        generate(path, rows)
    print(f"{rows:,} rows, {path.stat().st_size / 1e9:.2f} GB, {len(os.sched_getaffinity(0))} cores")
    scanned = scan(path)
    print(
        f"scan by pyarrow {pa.__version__}: {scanned.wall:.1f} s, {rows / scanned.wall:,.0f} rows/s; "
        f"{scanned.cpu:.1f} s of processor"
    )
    for ids in ("hash", "vocabulary"):
        cost, memory = prepare(path, ids)
        rate = f"{rows / cost.wall:,.0f} rows/s, {scanned.wall / cost.wall:.2f} of the scan's"
        cpu = f"{cost.cpu:.1f} s of processor, {scanned.cpu / cost.cpu:.2f} of its speed"
        peak = f"{memory.peak_bytes / 2**30:.2f} GiB in {memory.processes} processes together"
        print(f"dlrmx data prepare, ids: {ids}: {cost.wall:.1f} s, {rate}; {cpu}; {peak}")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    if len(sys.argv) > 2:
        main(count, Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(count, Path(made))
