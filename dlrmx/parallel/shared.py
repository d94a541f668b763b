"""Messages among the ranks of one machine, through memory that they share: one copy in, one copy out.

Each pair of ranks has a Unix socket. Memory comes from memfd_create and is handed over as a descriptor, so that it has
no name, does not count as /dev/shm, and is gone with its processes however they end. The sockets carry frames: a short
message itself, or the number of the segment that holds it, or the word that a segment was read and is free again. A
frame orders memory on both sides and wakes who waits, and the end of frames tells of a peer's death at once. Nothing
runs in the background: what is started is copied out then, what is awaited is copied in then, and no start waits for
another rank.

Sums are added up in the order of gloo's ring (gloo/allreduce.cc), so that both give the same bits.

Legend: W ranks.
"""

import math
import mmap
import os
import select
import socket
import struct
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch

FRAME = struct.Struct("<BQIQ")  # queue, number in the queue, segment, bytes of the message
NO_SEGMENT = (1 << 32) - 1  # the message follows in the frame
SHORT = 4096  # bytes: longer messages lie in a segment
READ, BUFFERS = 254, 255  # queues beside those of messages
ADDED, COPIED = 64, 128  # plus the queue of a sum: what ranks tell each other within it
SPARE = 8  # a segment is larger than its first message by this part, as batches differ
# gloo cuts a sum into pieces of this many bytes at most, and at least two for each rank.
RING_PIECE = 1 << 20


@dataclass(frozen=True)
class Frame:
    """A message that came: `short`, or so many bytes of the peer's segment."""

    segment: int
    size: int
    short: bytes


class Line:
    """The connection with one other rank."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self.socket, self.rank = connection, rank
        self.mine: list[torch.Tensor] = []  # segments, uint8, that this rank writes
        self.theirs: dict[int, torch.Tensor] = {}  # and those that the peer does
        self.free: set[int] = set()
        self._inbox: dict[tuple[int, int], Frame] = {}
        self._gone = False
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        connection.setblocking(False)
        weakref.finalize(self, connection.close)

    def read(self) -> None:
        """Take all frames that are there."""
        while not self._gone:
            try:
                data, descriptors, _, _ = socket.recv_fds(self.socket, FRAME.size + SHORT, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, descriptors = b"", []
            if not data:
                self._gone = True
                return
            queue, number, segment, size = FRAME.unpack_from(data)
            for descriptor in descriptors:
                self.theirs[segment] = _mapped(descriptor)
            if queue == READ:
                self.free.add(segment)
            else:
                self._inbox[queue, number] = Frame(segment, size, data[FRAME.size :])

    def take(self, queue: int, number: int, timeout: timedelta) -> Frame:
        """A frame of a queue, once it is there."""
        while (queue, number) not in self._inbox:
            if self._gone:
                raise RuntimeError(f"Connection closed by peer: rank {self.rank} is gone")
            if not self._poll.poll(timeout.total_seconds() * 1e3):
                raise RuntimeError(f"rank {self.rank} has sent nothing for {timeout}: Connection closed by peer?")
            self.read()
        return self._inbox.pop((queue, number))

    def segment(self, size: int) -> tuple[int, int | None]:
        """A segment of at least `size` bytes to write to, and its descriptor where the peer does not know it yet."""
        fitting = [number for number in self.free if len(self.mine[number]) >= size]
        if fitting:
            number = min(fitting, key=lambda number: len(self.mine[number]))
            self.free.remove(number)
            return number, None
        descriptor, memory = new_memory(size + size // SPARE)
        if self.free:  # one that is too small is given up for it
            number = self.free.pop()
            self.mine[number] = memory
            return number, descriptor
        self.mine.append(memory)
        return len(self.mine) - 1, descriptor


class SharedMemory:
    """The other ranks of this machine. Whatever all ranks start on a queue is numbered, the same on all of them."""

    def __init__(self, lines: Sequence[Line], rank: int, timeout: timedelta) -> None:
        self._lines, self._rank, self._timeout = lines, rank, timeout
        self._buffers: list[list[torch.Tensor]] = []  # each as all ranks have it
        self._started: Counter[int] = Counter()

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that this rank shares out; what others share with it is theirs."""
        return sum({memory.data_ptr(): len(memory) for line in self._lines for memory in line.mine}.values())

    def exchange(
        self, queue: int, send: torch.Tensor, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> tuple[torch.Tensor, "Receiving"]:
        """Start sending send_counts[r] elements of 1-D `send` to rank r; what is to come, once it was awaited."""
        number, parts = self._next(queue), send.split(list(send_counts))
        for line in self._lines:
            self._send(line, queue, number, parts[line.rank].view(torch.uint8))
        received = send.new_empty(sum(recv_counts))
        places = received.split(list(recv_counts))
        return received, Receiving(self, queue, number, parts[self._rank], places)

    def receive(self, queue: int, number: int, own: torch.Tensor, places: Sequence[torch.Tensor]) -> None:
        """Copy what comes from each rank to its place, and what this one sent to itself."""
        places[self._rank].copy_(own)
        for line in self._lines:
            frame, into = line.take(queue, number, self._timeout), places[line.rank].view(torch.uint8)
            assert frame.size == len(into), f"{frame.size} bytes from rank {line.rank}, not {len(into)}"
            if frame.segment != NO_SEGMENT:
                into.copy_(line.theirs[frame.segment][: frame.size])
                self._post(line, FRAME.pack(READ, 0, frame.segment, 0))
            elif frame.size:
                into.copy_(torch.frombuffer(bytearray(frame.short), dtype=torch.uint8))

    def buffer(self, numbers: int) -> torch.Tensor:
        """Zeros (numbers,) fp32 that can be summed where they are. Collective."""
        descriptor, memory = new_memory(max(1, 4 * numbers))
        number = self._next(BUFFERS)
        for line in self._lines:
            line.mine.append(memory)
            self._post(line, FRAME.pack(BUFFERS, number, len(line.mine) - 1, len(memory)), [descriptor])
        os.close(descriptor)
        of_all = [memory] * (len(self._lines) + 1)
        for line in self._lines:
            of_all[line.rank] = line.theirs[line.take(BUFFERS, number, self._timeout).segment]
        self._buffers.append([tensor.view(torch.float32)[:numbers] for tensor in of_all])
        return self._buffers[-1][self._rank]

    def sum(self, queue: int, part: torch.Tensor) -> "Summing | None":
        """Start summing a part of a buffer over all ranks, in place; None where it is no buffer's."""
        for of_all in self._buffers:
            first = (part.data_ptr() - of_all[self._rank].data_ptr()) // part.element_size()
            if first >= 0 and first + len(part) <= len(of_all[self._rank]) and part.dtype == torch.float32:
                number = self._next(queue)
                self.tell(queue, number)
                return Summing(
                    self, queue, number, self._rank, [tensor[first : first + len(part)] for tensor in of_all]
                )
        return None

    def tell(self, queue: int, number: int) -> None:
        """Send every rank an empty message."""
        for line in self._lines:
            self._post(line, FRAME.pack(queue, number, NO_SEGMENT, 0))

    def told(self, queue: int, number: int) -> None:
        """Wait for an empty message of every rank."""
        for line in self._lines:
            frame = line.take(queue, number, self._timeout)
            assert frame.segment == NO_SEGMENT and not frame.size, f"rank {line.rank} sends {frame.size} bytes"

    def _next(self, queue: int) -> int:
        self._started[queue] += 1
        return self._started[queue]

    def _send(self, line: Line, queue: int, number: int, message: torch.Tensor) -> None:
        line.read()  # segments may be free again
        if len(message) <= SHORT:
            self._post(line, FRAME.pack(queue, number, NO_SEGMENT, len(message)) + message.numpy().tobytes())
            return
        segment, descriptor = line.segment(len(message))
        line.mine[segment][: len(message)].copy_(message)
        frame = FRAME.pack(queue, number, segment, len(message))
        if descriptor is None:
            self._post(line, frame)
        else:
            self._post(line, frame, [descriptor])
            os.close(descriptor)

    def _post(self, line: Line, frame: bytes, descriptors: Sequence[int] = ()) -> None:
        while True:
            try:
                if descriptors:
                    socket.send_fds(line.socket, [frame], list(descriptors))
                else:
                    line.socket.send(frame)
                return
            except BlockingIOError:  # it does not read: it may be writing, and wait for who does not read either
                ready = select.poll()
                ready.register(line.socket, select.POLLOUT)
                ready.poll(1)
                for each in self._lines:
                    each.read()
            except (BrokenPipeError, ConnectionResetError):
                return  # it is gone: whoever needs something from it finds that out


@dataclass
class Receiving:
    """Messages under way from all ranks."""

    memory: SharedMemory
    queue: int
    number: int
    own: torch.Tensor | None
    places: Sequence[torch.Tensor]

    def wait(self) -> None:
        if self.own is not None:
            own, self.own = self.own, None
            self.memory.receive(self.queue, self.number, own, self.places)


@dataclass
class Summing:
    """A sum under way: each rank adds up one block of it, and takes the others' from those who added them up."""

    memory: SharedMemory
    queue: int
    number: int
    rank: int
    of_all: Sequence[torch.Tensor] | None

    def wait(self) -> None:
        if self.of_all is None:
            return
        of_all, world, self.of_all = self.of_all, len(self.of_all), None
        mine, blocks = of_all[self.rank], ring_blocks(len(of_all[0]), world)
        self.memory.told(self.queue, self.number)
        first, last = blocks[self.rank]
        total, *others = [of_all[(self.rank - k) % world][first:last] for k in range(1, world)]
        for other in others:
            total = other + total
        mine[first:last].add_(total)
        self._all_have(ADDED)
        for rank, (first, last) in enumerate(blocks):
            if rank != self.rank:
                mine[first:last].copy_(of_all[rank][first:last])
        self._all_have(COPIED)  # before that this rank's block must not change

    def _all_have(self, done: int) -> None:
        self.memory.tell(self.queue + done, self.number)
        self.memory.told(self.queue + done, self.number)


def ring_blocks(numbers: int, world: int) -> list[tuple[int, int]]:
    """[first, last) of the block of `numbers` fp32 numbers that each rank adds up last, as gloo's ring has it."""
    pieces = max(math.ceil(4 * numbers / RING_PIECE), 2 * world)
    each = math.ceil(pieces / world)  # of a rank
    length = math.ceil(numbers / (each * world)) * each
    cuts = [min(numbers, rank * length) for rank in range(world + 1)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def new_memory(size: int) -> tuple[int, torch.Tensor]:
    """Zeroed memory (size,) uint8 and its descriptor, which the caller closes. Raises OSError where there is none."""
    descriptor = os.memfd_create("dlrmx")
    os.posix_fallocate(descriptor, 0, size)
    return descriptor, torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)


def _mapped(descriptor: int) -> torch.Tensor:
    """The memory that a descriptor stands for; closes it."""
    memory = torch.frombuffer(mmap.mmap(descriptor, 0), dtype=torch.uint8)
    os.close(descriptor)
    return memory
