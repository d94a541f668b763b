"""A side's worker process: it takes orders on stdin, and answers each by one line of JSON on stdout.

`run N` trains N steps and gives the seconds of each and this rank's loss sums; the end of stdin ends it.
"""

import json
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist


def start(rank: int, world: int, store: str) -> None:
    """Join the other ranks, with one thread."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)


def serve(step: Callable[[int], torch.Tensor]) -> None:
    """Answer until stdin ends. step: trains the k-th step, and gives its loss sum."""
    done = 0
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stdout = sys.stderr  # what libraries print is no answer
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        count = int(line.split()[1])
        seconds, losses = [], []
        for _ in range(count):
            dist.barrier()
            began = time.perf_counter()
            loss = step(done)
            seconds.append(time.perf_counter() - began)
            losses.append(float(loss))
            done += 1
        print(json.dumps({"seconds": seconds, "losses": losses}), file=answers)
