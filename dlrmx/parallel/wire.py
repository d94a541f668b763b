"""The wire: every collective that moves training data starts here, is counted here and is awaited here.

Each kind of exchange has a process group of its own and runs in one order on it: gloo pairs messages by order,
and two kinds on one group would swap tensors of equal size without a word. Where all ranks are of one machine, and no
GPUs, training data goes through memory that they share (shared.py) and not through the groups; bits are the same.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol, get_args

import torch
import torch.distributed as dist

from dlrmx.parallel.meeting import meet
from dlrmx.parallel.shared import SharedMemory
from dlrmx.plan.shards import cut

Kind = Literal["counts", "ids", "vectors", "gradients", "dense", "metrics", "control"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Link = Literal["own", "up", "out"]  # to oneself, to other ranks of the node, to other nodes
IN_NODE: tuple[Kind, ...] = ("counts", "ids", "vectors", "gradients")
LARGE: tuple[Kind, ...] = ("vectors", "gradients", "dense")
TRAINING: tuple[Kind, ...] = (*IN_NODE, "dense")

# A save may keep a rank away from a collective for long; a dead peer is noticed at once through its closed socket.
TIMEOUT = timedelta(minutes=30)


class Work(Protocol):
    """What can be waited for, more than once."""

    def wait(self) -> object: ...


@dataclass(frozen=True)
class Pending:
    """A collective under way; `wait` gives its result, and adds the time that it took to `waited`."""

    works: Sequence[Work]
    finish: Callable[[], torch.Tensor]  # gives the result once all is there
    kind: Kind
    waited: Counter[Kind]

    def wait(self) -> torch.Tensor:
        began = time.perf_counter()
        for work in self.works:
            work.wait()
        self.waited[self.kind] += time.perf_counter() - began  # type: ignore[assignment]  # a Counter of seconds
        return self.finish()


class Wire:
    """The process groups of all kinds of exchange, the bytes that each has sent, and how long each was waited for.

    world and rank are of the ranks that it joins: all, or those of a node.
    """

    def __init__(
        self, ranks_per_node: int = 1, *, overlap: bool = True, messages: int = 1, inside: "Wire | None" = None
    ) -> None:
        """Join all ranks or, `inside` a wire of all, the ranks of this one's node, whose traffic that one counts.

        Without `overlap` every collective is waited for where it starts. Large exchanges go in so many `messages`.
        """
        self._overlap, self._messages = overlap, messages
        me, all_ranks = dist.get_rank(), range(dist.get_world_size())
        nodes = [rank // ranks_per_node for rank in all_ranks]
        members = [rank for rank in all_ranks if inside is None or nodes[rank] == nodes[me]]
        self.rank, self.world, self.ranks_per_node = members.index(me), len(members), ranks_per_node
        self._groups: dict[Kind, dist.ProcessGroup] = {
            kind: dist.new_group(members, timeout=TIMEOUT, use_local_synchronization=inside is not None)
            for kind in (KINDS if inside is None else IN_NODE)
        }
        self._links: list[Link] = [
            "own" if rank == me else "up" if nodes[rank] == nodes[me] else "out" for rank in members
        ]
        self._memory, self.path = self._meet()  # path: what carries training data, for people to read
        self._sent: Counter[tuple[Kind, Link]] = Counter() if inside is None else inside._sent
        self._waited: Counter[Kind] = Counter() if inside is None else inside._waited

    def _meet(self) -> tuple[SharedMemory | None, str]:
        """The memory that all ranks share, if they are of one node and have processors alone. Collective."""
        backend: str = dist.get_backend()
        if self.world == 1 or "out" in self._links or backend != "gloo":
            return None, backend
        met = meet(self._groups["counts"], self.rank, self.world, TIMEOUT)
        return (None, f"gloo: {met}") if isinstance(met, str) else (met, "shared memory")

    def in_node(self) -> "Wire":
        """The ranks of this node among themselves. Collective in the node."""
        return Wire(self.ranks_per_node, overlap=self._overlap, inside=self)

    def group(self, kind: Kind) -> dist.ProcessGroup:
        """The group of one kind, for collectives that are not training traffic (metrics, checkpoints)."""
        return self._groups[kind]

    @property
    def shared_bytes(self) -> int:
        """Memory that this rank shares out to others of its machine."""
        return 0 if self._memory is None else self._memory.nbytes

    def take_traffic(self) -> Counter[tuple[Kind, Link]]:
        """Bytes of training that this rank has sent since the last call; starts counting anew."""
        taken = Counter({key: count for key, count in self._sent.items() if key[0] in TRAINING})
        self._sent.clear()
        return taken

    def take_waited(self) -> dict[Kind, float]:
        """Seconds that this rank has waited for its exchanges since the last call; starts counting anew.

        On a GPU waiting is the device's, and next to none of it is seen here.
        """
        taken = {kind: float(self._waited[kind]) for kind in TRAINING}
        self._waited.clear()
        return taken

    def _start(self, kind: Kind, works: Sequence[Work], finish: Callable[[], torch.Tensor]) -> Pending:
        pending = Pending(works, finish, kind, self._waited)
        if not self._overlap:
            pending.wait()
        return pending

    def all_to_all(
        self,
        kind: Kind,
        send: torch.Tensor,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        messages: int | None = None,
    ) -> Pending:
        """Start sending send_counts[r] elements of 1-D `send` to rank r; the result holds recv_counts[r] from each.

        messages: in so many, as all ranks must; by default as the wire has it.
        """
        for count, link in zip(send_counts, self._links, strict=True):
            self._sent[kind, link] += count * send.element_size()
        pieces = messages or (self._messages if kind in LARGE else 1)
        if pieces == 1:
            received, work = self._exchange(kind, send, send_counts, recv_counts)
            return self._start(kind, [work], lambda: received)
        parts = send.split(list(send_counts))
        started = [
            self._exchange(
                kind,
                torch.cat([part[cut(len(part), pieces, k) : cut(len(part), pieces, k + 1)] for part in parts]),
                [_piece(count, pieces, k) for count in send_counts],
                [_piece(count, pieces, k) for count in recv_counts],
            )
            for k in range(pieces)
        ]

        def joined() -> torch.Tensor:
            came = [
                piece.split([_piece(count, pieces, k) for count in recv_counts]) for k, (piece, _) in enumerate(started)
            ]
            return torch.cat([piece[member] for member in range(self.world) for piece in came])

        return self._start(kind, [work for _, work in started], joined)

    def _exchange(
        self, kind: Kind, send: torch.Tensor, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> tuple[torch.Tensor, Work]:
        if self._memory is not None:
            return self._memory.exchange(KINDS.index(kind), send, send_counts, recv_counts)
        received = send.new_empty(sum(recv_counts))
        work = dist.all_to_all_single(
            received, send, list(recv_counts), list(send_counts), group=self._groups[kind], async_op=True
        )
        return received, work

    def all_reduce(self, kind: Kind, buffer: torch.Tensor) -> Pending:
        """Start summing 1-D `buffer` over all ranks in place.

        Counted as the ring of all ranks that it is: 2 (W - 1) / W of the buffer to the next rank.
        """
        ring = 2 * (self.world - 1) * buffer.numel() * buffer.element_size() // self.world
        self._sent[kind, self._links[(self.rank + 1) % self.world]] += ring
        work = self._memory and self._memory.sum(KINDS.index(kind), buffer)
        return self._start(
            kind, [work or dist.all_reduce(buffer, group=self._groups[kind], async_op=True)], lambda: buffer
        )

    def buffer(self, numbers: int, device: torch.device) -> torch.Tensor:
        """Zeros (numbers,) where `all_reduce` sums them, or a part of them, at least cost. Collective."""
        if self._memory is not None:
            return self._memory.buffer(numbers)
        return torch.zeros(numbers, device=device)

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


def _piece(count: int, pieces: int, index: int) -> int:
    """Elements of one of several pieces of `count`."""
    return cut(count, pieces, index + 1) - cut(count, pieces, index)
