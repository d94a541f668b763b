"""dlrmx's side with a stopwatch: what only thresholds need, without waits; its seconds are told in place of losses."""

import sys
import time
from collections.abc import Callable
from typing import Any

import dlrmx_side
import torch
from serve import serve

from dlrmx.parallel.sparse_hop import PendingSparseGradients, PendingSparseVectors, SparseHop
from dlrmx.parallel.sparse_sum import PendingSparseSum, SparseSum
from dlrmx.parallel.wire import Pending

COUNTED = ((SparseSum, "start"), (SparseHop, "vectors"), (SparseHop, "gradients"))
COUNTED_TOO = ((PendingSparseSum, "wait"), (PendingSparseVectors, "wait"), (PendingSparseGradients, "wait"))
spent = {"within": 0.0, "waited": 0.0}
depth = 0


def timed(function: Callable[..., Any], key: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        global depth
        counts = key == "within" or depth > 0  # waits outside of what is counted are not its own
        depth += key == "within"
        began = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            depth -= key == "within"
            spent[key] += (time.perf_counter() - began) * counts

    return call


def told(step: Callable[[int], torch.Tensor]) -> Callable[[int], torch.Tensor]:
    def counted(number: int) -> torch.Tensor:
        spent.update(within=0.0, waited=0.0)
        step(number)
        return torch.tensor(spent["within"] - spent["waited"])

    return counted


if __name__ == "__main__":
    for owner, name in (*COUNTED, *COUNTED_TOO):
        setattr(owner, name, timed(getattr(owner, name), "within"))
    setattr(Pending, "wait", timed(Pending.wait, "waited"))  # noqa: B010  # mypy: a method is replaced
    dlrmx_side.serve = lambda step: serve(told(step))  # type: ignore[attr-defined]
    dlrmx_side.main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
