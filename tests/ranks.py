"""Runs a function on W real processes joined by gloo, and gives back what each returned.

A start costs about 3 s whatever it runs, so a test module starts each world once and runs all its cases in it.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from dlrmx.parallel.wire import Wire


def run_ranks(world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """[function(*args) of rank 0, of rank 1, ...]; an exception on any rank is raised here."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(_run, args=(world, folder, function, args), nprocs=world)
        return [torch.load(Path(folder) / f"result-{rank}", weights_only=False) for rank in range(world)]


def _run(rank: int, world: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    result = function(*args)
    torch.save(result, Path(folder) / f"result-{rank}")
    dist.barrier()
    dist.destroy_process_group()


def sent_bytes(wire: Wire) -> dict[str, int]:
    """Bytes by kind that this rank sent since the last call, those to itself included."""
    total: Counter[str] = Counter()
    for (kind, _), count in wire.take_traffic().items():
        total[kind] += count
    return total
