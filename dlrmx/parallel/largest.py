"""The k-th largest magnitude of values that lie on many ranks, exactly: a radix select over all-reduced histograms.

The bits of a non-negative fp32 number are ordered as the number is, so its four bytes are found one after the other,
the highest first: each round counts, over all ranks, the next byte of the values that agree so far. Four passes over
the values and four all-reduces of 256 counts per group, however many values there are; a sort of them all would cost
ten times as much, and could not be shared between ranks.
"""

from collections.abc import Callable

import torch

BINS = 256
SHIFTS = (24, 16, 8, 0)


def largest(
    values: torch.Tensor, groups: torch.Tensor, ranks: torch.Tensor, sum_over_ranks: Callable[[torch.Tensor], object]
) -> torch.Tensor:
    """Per group the `ranks`-th largest |value| over all ranks, (G,) fp32.

    values (n,) fp32, finite; groups (n,) int64, the group of each value; ranks (G,) int64, 1 for the largest, the same
    on every rank and at most the values of the group on all of them; a group without values gives 0. `sum_over_ranks`
    adds up an int64 tensor in place. Collective.
    """
    bits = values.abs().view(torch.int32).to(torch.int64)
    left = ranks.clone()
    found = torch.zeros_like(ranks)
    for shift in SHIFTS:
        counts = torch.bincount(groups * BINS + ((bits >> shift) & (BINS - 1)), minlength=len(ranks) * BINS)
        counts = counts.view(-1, BINS)
        sum_over_ranks(counts)
        above = counts.flip(1).cumsum(1).flip(1)  # values whose byte is this one or larger
        byte = ((above >= left.unsqueeze(1)).sum(1) - 1).clamp(min=0)
        left -= above.gather(1, byte.unsqueeze(1)).squeeze(1) - counts.gather(1, byte.unsqueeze(1)).squeeze(1)
        found |= byte << shift
        agree = (bits >> shift) == (found >> shift)[groups]
        bits, groups = bits[agree], groups[agree]
    return found.to(torch.int32).view(torch.float32)
