"""The sum of a flat buffer over all ranks in a wire format: each rank adds a part in fp32 and sends the sum to all.

An all-reduce in the format itself would round after each addition, and cannot add rows with scales. All ranks, the
adder too, take the sum as it was sent, so that they stay equal in every bit.

Legend: W ranks, N numbers of the buffer, in rows of ROW numbers that share a scale where the format has one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dlrmx.parallel.codec import Codec
from dlrmx.parallel.wire import Pending, Wire
from dlrmx.plan.shards import cut
from dlrmx.plan.style import DENSE_ROW as ROW


def start_coded_sum(buffer: torch.Tensor, codec: Codec, wire: Wire) -> "PendingCodedSum":
    """Start summing 1-D `buffer` over all ranks in place."""
    num_rows = -(-len(buffer) // ROW)
    padded = torch.nn.functional.pad(buffer, (0, num_rows * ROW - len(buffer))).view(num_rows, ROW)
    cuts = [cut(num_rows, wire.world, rank) for rank in range(wire.world + 1)]
    rows = [last - first for first, last in zip(cuts, cuts[1:], strict=False)]
    width = codec.width(ROW)
    mine = [rows[wire.rank] * width] * wire.world
    pending = wire.all_to_all("dense", codec.encode(padded).view(-1), [count * width for count in rows], mine)
    return PendingCodedSum(pending, buffer, codec, wire, rows)


@dataclass(frozen=True)
class PendingCodedSum:
    """Parts under way to their adders."""

    pending: Pending
    buffer: torch.Tensor
    codec: Codec
    wire: Wire
    rows: Sequence[int]  # of the buffer that each rank adds

    def wait(self) -> torch.Tensor:
        """Add what came in rank order, send the sum to all, and fill the buffer with all sums. Collective."""
        width, own = self.codec.width(ROW), self.rows[self.wire.rank]
        first, *others = self.codec.decode(self.pending.wait().view(-1, width)).split([own] * self.wire.world)
        total = first.clone()
        for part in others:
            total += part
        answer = self.codec.encode(total).view(-1)
        counts = [count * width for count in self.rows]
        sums = self.wire.all_to_all("dense", answer.repeat(self.wire.world), [len(answer)] * self.wire.world, counts)
        self.buffer.copy_(self.codec.decode(sums.wait().view(-1, width)).view(-1)[: len(self.buffer)])
        return self.buffer
