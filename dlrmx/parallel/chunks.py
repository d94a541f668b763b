"""A rank's batch in chunks of consecutive samples: vectors and gradients of one travel under the work on another.

Ids travel and are looked up for the whole batch at once, and tables are updated once; only vectors and their gradients
go chunk by chunk. The bags of a (member, slot) lie in the order of their samples on both sides, so a chunk's are a part
of them in the same order: who holds the rows needs to be told no more than how many they are.

Legend: B samples of this rank, n chunks, M members, S slots, D width of a fused table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from dlrmx.parallel.carrier import Counts
from dlrmx.parallel.hops import Hop
from dlrmx.parallel.routing import Routed
from dlrmx.plan.shards import cut


@dataclass(frozen=True)
class Chunked:
    """A batch's ids, routed, and what of its bags is of each chunk's samples."""

    whole: Routed
    chunks: tuple[Routed, ...]  # bags, positions and leaf_rows of each; its ids are those of the whole


@dataclass(frozen=True)
class Chunk:
    """One chunk as both sides see it: what this rank wants for it, and what others want of this rank for theirs."""

    routed: Routed
    counts: Counts
    rows: tuple[torch.Tensor, ...] | None  # per fused table, the places of its bags among all that came; None: all


def in_chunks(routed: Routed, samples: int, chunks: int) -> Chunked:
    """Which bags are of which chunk; a bag's number is slot * B + sample."""
    if chunks == 1:
        return Chunked(routed, (routed,))
    cuts = torch.tensor([cut(samples, chunks, k) for k in range(chunks + 1)], device=routed.positions.device)
    slot, sample = routed.positions // max(1, samples), routed.positions % max(1, samples)
    of = torch.bucketize(sample, cuts[1:-1], right=True)
    members, slots = routed.bags.shape
    kind = torch.repeat_interleave(torch.arange(members * slots), routed.bags.view(-1)).to(of.device)
    parts = []
    for k in range(chunks):
        mine, size = of == k, int(cuts[k + 1] - cuts[k])
        parts.append(
            replace(
                routed,
                positions=slot[mine] * size + sample[mine] - cuts[k],
                bags=torch.bincount(kind[mine], minlength=members * slots).view(members, slots).cpu(),
                leaf_rows=tuple(rows // max(1, samples) * size for rows in routed.leaf_rows),
            )
        )
    return Chunked(routed, tuple(parts))


def both_sides(routed: Chunked, counts: Counts, hop: Hop) -> list[Chunk]:
    """The chunks, once all members have told their counts."""
    if len(routed.chunks) == 1:
        return [Chunk(routed.whole, counts, None)]
    places = [_places(counts.by_chunk[:, :, first:last]) for first, last in hop.ranges]
    return [
        Chunk(
            part, replace(counts, bags=counts.by_chunk[k]), tuple(rows[k].to(part.positions.device) for rows in places)
        )
        for k, part in enumerate(routed.chunks)
    ]


def _places(by_chunk: torch.Tensor) -> list[torch.Tensor]:
    """Per chunk the places of its bags in (member, slot, bag) order; by_chunk (n, M, S) bags."""
    chunks, members, slots = by_chunk.shape
    of = torch.repeat_interleave(torch.arange(chunks).repeat(members * slots), by_chunk.permute(1, 2, 0).reshape(-1))
    return [(of == k).nonzero().view(-1) for k in range(chunks)]


def part_of(tensors: Sequence[torch.Tensor], chunk: Chunk) -> list[torch.Tensor]:
    """The chunk's rows of (bags, D) tensors, one per fused table."""
    if chunk.rows is None:
        return list(tensors)
    return [tensor[rows] for tensor, rows in zip(tensors, chunk.rows, strict=True)]


def joined(chunks: Sequence[tuple[Chunk, Sequence[torch.Tensor]]]) -> list[torch.Tensor]:
    """The inverse of `part_of`: (bags, D) per fused table, of all chunks."""
    (first, tensors), *_ = chunks
    if first.rows is None:
        return list(tensors)
    whole = [
        tensor.new_empty(sum(len(part[index]) for _, part in chunks), tensor.shape[1])
        for index, tensor in enumerate(tensors)
    ]
    for chunk, part in chunks:
        assert chunk.rows is not None
        for tensor, rows, values in zip(whole, chunk.rows, part, strict=True):
            tensor[rows] = values
    return whole
