"""Memory that the ranks of one machine share moves and adds the same bits as gloo does, and tells of a peer's death."""

import os
import socket
import threading
from datetime import timedelta
from typing import Any

import pytest
import torch

from dlrmx.parallel import meeting
from dlrmx.parallel.shared import SHORT, Line, SharedMemory
from dlrmx.parallel.wire import Kind, Wire
from ranks import run_ranks, sent_bytes

CPU = torch.device("cpu")
# Empty, in a frame, at its border, in segments, growing and shrinking.
COUNTS = (0, 1, SHORT // 4, SHORT // 4 + 1, 70_000, 90_000, 5_000, 300_001)
# Fewer than ranks, gloo's smallest pieces, and several pieces of a mebibyte for each rank.
SUMS = (0, 1, 2, 5, 31, 1_000, 100_003, 2_500_001)


def message(rank: int, step: int, counts: list[int]) -> torch.Tensor:
    return torch.randn(sum(counts), generator=torch.Generator().manual_seed(100 * rank + step))


def counts_of(rank: int, step: int, world: int) -> list[int]:
    """What a rank sends to each at a step."""
    return [COUNTS[(step + 3 * rank + peer) % len(COUNTS)] for peer in range(world)]


def moved() -> dict[str, Any]:
    """By memory and by gloo: messages of several kinds, started before others are awaited, and sums."""
    found: dict[str, Any] = {}
    for name, wire in (("gloo", Wire()), ("memory", Wire(8))):
        assert wire.path == {"gloo": "gloo", "memory": "shared memory"}[name]
        messages = []
        for step in range(len(COUNTS)):
            counts = counts_of(wire.rank, step, wire.world)
            come = [counts_of(peer, step, wire.world)[wire.rank] for peer in range(wire.world)]
            kinds: tuple[Kind, ...] = ("vectors", "gradients")
            pending = [wire.all_to_all(k, message(wire.rank, step, counts), counts, come) for k in kinds]
            pending.append(
                wire.all_to_all("vectors", message(wire.rank, step, counts).half(), counts, come, messages=3)
            )
            messages += [each.wait().clone() for each in (pending[1], pending[0], pending[2])]
        buffer = wire.buffer(sum(SUMS), CPU)
        sums = []
        for turn in range(2):
            buffer.copy_(message(wire.rank, turn, list(SUMS)))
            parts = [wire.all_reduce("dense", part) for part in buffer.split(list(SUMS))]
            sums += [part.wait().clone() for part in parts]
        other = message(wire.rank, 7, [1_000])
        found[name] = {"messages": messages, "sums": [*sums, wire.all_reduce("dense", other).wait()]}
        found[name]["sent"] = sent_bytes(wire)
    return found


@pytest.mark.parametrize("world", [2, 3, 4])
def test_equals_gloo_in_every_bit_and_in_what_it_counts(world: int) -> None:
    for found in run_ranks(world, moved):
        assert found["gloo"]["sent"] == found["memory"]["sent"]
        for what in ("messages", "sums"):
            pairs = zip(found["gloo"][what], found["memory"][what], strict=True)
            assert [torch.equal(a, b) for a, b in pairs] == [True] * len(found["gloo"][what]), what


def refused() -> tuple[str, torch.Tensor]:
    """What a wire says where rank 1 alone has no memory to share, and what it moves all the same."""
    if torch.distributed.get_rank() == 1:

        def nothing(size: int) -> tuple[int, torch.Tensor]:
            raise OSError("none left")

        meeting.new_memory = nothing  # type: ignore[attr-defined]
    wire = Wire(8)
    return wire.path, wire.all_to_all("ids", torch.tensor([wire.rank] * 2), [1, 1], [1, 1]).wait()


def test_where_one_rank_cannot_share_all_go_by_gloo_and_say_why() -> None:
    for path, came in run_ranks(2, refused):
        assert path == "gloo: no shared memory: none left"
        assert came.tolist() == [0, 1]


def pair() -> tuple[SharedMemory, SharedMemory]:
    """Two ranks in one process."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    timeout = timedelta(seconds=20)
    first, second = (SharedMemory([Line(end, 1 - rank)], rank, timeout) for rank, end in enumerate(ends))
    return first, second


def test_a_segment_that_was_read_is_used_again_and_one_too_small_is_given_up() -> None:
    ranks = pair()
    for size in (10_000, 9_000, 11_000, 50_000, 10_000):
        messages = [torch.full((2 * size,), float(size + rank)) for rank in range(2)]
        under_way = [
            rank.exchange(0, message, [size] * 2, [size] * 2) for rank, message in zip(ranks, messages, strict=True)
        ]
        for received, work in under_way:
            work.wait()
            assert torch.equal(received, torch.cat([messages[0][:size], messages[1][:size]]))
    for rank in ranks:
        (line,) = rank._lines
        assert [len(segment) for segment in line.mine] == [4 * 50_000 * 9 // 8]
        assert rank.nbytes == 4 * 50_000 * 9 // 8


def test_what_nobody_waits_for_is_in_nobodys_way() -> None:
    ranks = pair()
    started = [[rank.exchange(0, torch.full((2,), 1.0 * turn), [1, 1], [1, 1]) for rank in ranks] for turn in range(3)]
    for turn in (2, 0):
        for received, work in started[turn]:
            work.wait()
            assert received.tolist() == [turn, turn]


def test_both_may_start_more_than_a_socket_holds() -> None:
    """Neither would read while it writes, if it waited for the other to read."""
    found: list[int] = []

    def work(memory: SharedMemory) -> None:
        message = torch.zeros(2 * SHORT, dtype=torch.uint8)
        under_way = [memory.exchange(0, message, [SHORT] * 2, [SHORT] * 2) for _ in range(2_000)]
        for _, receiving in under_way:
            receiving.wait()
        found.append(len(under_way))

    threads = [threading.Thread(target=work, args=(memory,), daemon=True) for memory in pair()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [2_000, 2_000]


def test_a_peers_death_is_noticed_at_once_and_what_it_sent_before_arrives() -> None:
    first, second = pair()
    message = torch.arange(40_000.0)
    received, work = first.exchange(0, message, [20_000] * 2, [20_000] * 2)
    child = os.fork()
    if child == 0:  # holds the other end until it is killed
        second.exchange(0, message, [20_000] * 2, [20_000] * 2)
        os.kill(os.getpid(), 9)
    second._lines[0].socket.close()
    os.waitpid(child, 0)
    work.wait()
    assert torch.equal(received, torch.cat([message[:20_000], message[:20_000]]))
    _, never = first.exchange(0, message, [20_000] * 2, [20_000] * 2)
    with pytest.raises(RuntimeError, match="Connection closed by peer: rank 1 is gone"):
        never.wait()
