"""The wire: every collective that moves training data starts here, is counted here and is awaited here.

Each kind of exchange has a process group of its own and runs in one order on it: gloo pairs messages by order,
and two kinds on one group would swap tensors of equal size without a word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

import torch
import torch.distributed as dist

Kind = Literal["counts", "ids", "vectors", "gradients", "dense", "metrics", "control"]

# A save may keep a rank away from a collective for long; a dead peer is noticed at once through its closed socket.
TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class Pending:
    """A collective under way; `wait` gives its result."""

    result: torch.Tensor
    work: dist.Work

    def wait(self) -> torch.Tensor:
        self.work.wait()
        return self.result


class Wire:
    """The process groups of all kinds of exchange, and the bytes that each has sent (the part to oneself included)."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self._groups: dict[Kind, dist.ProcessGroup] = {kind: dist.new_group(timeout=TIMEOUT) for kind in get_args(Kind)}
        self._bytes = dict.fromkeys(get_args(Kind), 0)

    def group(self, kind: Kind) -> dist.ProcessGroup:
        """The group of one kind, for collectives that are not training traffic (metrics, checkpoints)."""
        return self._groups[kind]

    def take_bytes(self) -> dict[str, int]:
        """Bytes sent by this rank since the last call, by kind; starts counting anew."""
        taken = {kind: count for kind, count in self._bytes.items() if kind not in ("metrics", "control")}
        self._bytes = dict.fromkeys(self._bytes, 0)
        return taken

    def all_to_all(
        self, kind: Kind, send: torch.Tensor, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> Pending:
        """Start sending send_counts[r] elements of 1-D `send` to rank r; the result holds recv_counts[r] from each."""
        received = send.new_empty(sum(recv_counts))
        self._bytes[kind] += send.numel() * send.element_size()
        work = dist.all_to_all_single(
            received, send, list(recv_counts), list(send_counts), group=self._groups[kind], async_op=True
        )
        return Pending(received, work)

    def all_reduce(self, kind: Kind, buffer: torch.Tensor) -> Pending:
        """Start summing 1-D `buffer` over all ranks in place."""
        self._bytes[kind] += buffer.numel() * buffer.element_size()
        return Pending(buffer, dist.all_reduce(buffer, group=self._groups[kind], async_op=True))

    def gather(self, columns: torch.Tensor) -> torch.Tensor | None:
        """Rank 0 gets the (n, C) rows of all ranks one after the other, n may differ by rank; the others get None."""
        group = self._groups["metrics"]
        count = torch.tensor([columns.shape[0]], dtype=torch.int64, device=columns.device)
        counts = torch.empty(self.world, dtype=torch.int64, device=columns.device)
        dist.all_to_all_single(counts, count.expand(self.world).contiguous(), group=group)
        mine = [columns.shape[0] * columns.shape[1] if rank == 0 else 0 for rank in range(self.world)]
        theirs = [n * columns.shape[1] if self.rank == 0 else 0 for n in counts.tolist()]
        gathered = columns.new_empty(sum(theirs))
        dist.all_to_all_single(gathered, columns.reshape(-1), theirs, mine, group=group)
        return gathered.view(-1, columns.shape[1]) if self.rank == 0 else None

    def agree(self, value: int) -> int:
        """The value that all ranks take: the largest of theirs."""
        every = torch.empty(self.world, dtype=torch.int64)
        mine = torch.full((self.world,), value, dtype=torch.int64)
        dist.all_to_all_single(every, mine, group=self._groups["control"])
        return int(every.max())
