"""What glibc and Linux leave to a program about the pages of its memory.

Hints that change no number: where a system does not know one, all stays as it was.
"""

import ctypes
import mmap
import sys

import torch

HUGE_PAGE = 2 << 20  # x86-64, and ARM with pages of 4 KiB
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
MOST = (1 << 31) - 1  # what mallopt takes
LARGEST_BLOCK, LARGEST_BLOCK_BEFORE = 1 << 30, 32 << 20  # of glibc's heap; before 2.35 it takes no more than 32 MiB


def keep_freed_memory() -> None:
    """Let this process keep what it frees, for the next step, which needs as much again.

    Otherwise glibc gives the end of its heap and each block of over 32 MiB back to the system at once, and the next
    step meets every page anew: 17,000 of them, a tenth of the step, where there are 500 tables.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, MOST)
        if not mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK):
            mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK_BEFORE)


def use_huge_pages(zeros: torch.Tensor) -> None:
    """Put fresh zeros on the processor into pages of 2 MiB, where the system has not said `never`.

    Rows are read and written in no order, and with pages of 4 KiB each is a miss of the TLB, too.
    """
    first = -(-zeros.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (zeros.data_ptr() + zeros.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if size >= HUGE_PAGE and sys.platform.startswith("linux"):
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        madvise(first, size, mmap.MADV_DONTNEED)  # the pages that are there are small ones; new ones are zeros, too
        madvise(first, size, mmap.MADV_HUGEPAGE)
