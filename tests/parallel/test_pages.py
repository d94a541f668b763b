"""A worker keeps what it frees, and its tables lie in large pages where the system has them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dlrmx.parallel.fused import FusedTable
from dlrmx.parallel.pages import HUGE_PAGE, use_huge_pages
from dlrmx.recipe.schema import SparseOptimizer

ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
needs_huge_pages = pytest.mark.skipif(
    not ENABLED.exists() or "[never]" in ENABLED.read_text(), reason="this system has no transparent huge pages"
)


# What earlier work left free in a process, or a system that gives large pages unasked, would hide what is counted.
STEPS = """
import ctypes, resource, sys
from dlrmx.parallel.pages import keep_freed_memory
libc = ctypes.CDLL(None)
libc.prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], [ctypes.c_void_p]
if sys.argv[1] == "keep":
    keep_freed_memory()
sizes = 3 << 20, 40 << 20, 20 << 20
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(size) for size in sizes]
    for block, size in zip(blocks, sizes):
        libc.memset(block, 1, size)
    for block in blocks:
        libc.free(block)
    met = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(met)
"""


def pages_met(what: str) -> int:
    """Pages that the last of several like steps met for the first time, in a process of its own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", STEPS, what], env=plain, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_step_meets_the_pages_of_the_one_before() -> None:
    assert pages_met("free") > 10_000  # of 16,128 of 4 KiB: at least those of the block of 40 MiB
    assert pages_met("keep") < 50


def flags_of(address: int) -> list[str]:
    """What Linux notes of the mapping that an address is in."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first:
            low, high = (int(part, 16) for part in first.split("-"))
            found = low <= address < high
        elif found and first == "VmFlags:":
            return rest.split()
    raise AssertionError(f"{address:x} is in no mapping")


@needs_huge_pages
def test_a_large_table_and_its_sums_lie_in_huge_pages_and_are_zeros_still() -> None:
    table = FusedTable(600_000, 8, "fp32", SparseOptimizer(kind="rowwise_adagrad", lr=0.1), torch.device("cpu"))
    assert table.state is not None
    for tensor in (table.weight, table.state):
        assert "hg" in flags_of(tensor.data_ptr() + HUGE_PAGE // 2)
        assert not tensor.any()


@needs_huge_pages
def test_no_byte_beside_the_zeros_is_touched() -> None:
    memory = torch.ones(3 * HUGE_PAGE, dtype=torch.uint8)
    middle = memory[100 : 100 + 2 * HUGE_PAGE].zero_()
    use_huge_pages(middle)
    assert not middle.any()
    assert memory[:100].all() and memory[100 + 2 * HUGE_PAGE :].all()
