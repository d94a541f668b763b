"""Exchanges things between ranks so that each stretch of a step is even, not only their sum.

All ranks wait for the slowest at each exchange, so a step takes the sum over stretches of the longest on any rank; two
ranks of one load, one of which looks up much and the other sends much, wait for each other twice. The search goes
down on a smooth stand-in for that sum, the p-th powers of the ranks' loads, which a change of two ranks moves locally.

Legend: N things, K ranks, S stretches.
"""

from dataclasses import dataclass

import numpy as np

from dlrmx.plan.place import Bins, Things
from dlrmx.plan.workload import Bools, Floats, Ints

SQUARINGS = 4  # p = 2**4: near enough to the maximum
CHANGES_PER_RANK = 3  # at the most
LIMIT = 1.006  # of the mean of all seconds, or of the highest there was: no rank's sum goes above
TALLEST = 8  # things of the worst rank are tried
EPSILON = 1e-6  # of its height: no gain
STUCK = 8  # so many of the worst ranks in a row that nothing helps end the search


@dataclass
class Search:
    """Where things lie while they are exchanged. Loads are in parts of their stretch's mean, which are `weight`."""

    things: Things
    part: Floats  # (N, S) of each thing
    weight: Floats  # (S,)
    limit: float  # of a rank's seconds
    where: Ints  # (N,)
    load: Floats  # (K, S)
    height: Floats  # (K,) weighted p-th powers of the loads
    free: Floats  # (K,) device bytes
    free_host: Floats  # (K,)


def even_out(things: Things, by_stretch: Floats, bins: Bins, base: Floats, where: Ints) -> Ints:
    """A placement with more even stretches. by_stretch: of each thing, (N, S); base: of each rank without, (K, S).

    Memory holds if it held. Each change is the best of its rank, so the result is the same everywhere.
    """
    now = bins.after(things, where)
    load = base.copy()
    np.add.at(load, where, by_stretch)
    weight = np.maximum(load.mean(axis=0), 1e-30)
    limit = max(LIMIT * float(weight.sum()), float(load.sum(axis=1).max()))
    load /= weight
    search = Search(
        things,
        by_stretch / weight,
        weight,
        limit,
        where.copy(),
        load,
        _heights(load, weight),
        now.device_bytes,
        now.host_bytes,
    )
    stuck: list[int] = []
    for _ in range(CHANGES_PER_RANK * len(load)):
        height = search.height.copy()
        height[stuck] = -1.0
        worst = int(height.argmax())
        if _exchange(search, worst):
            stuck = []
        else:
            stuck.append(worst)
            if len(stuck) >= min(STUCK, len(load)):
                break
    return search.where


def _heights(load: Floats, weight: Floats) -> Floats:
    """The p-th powers of loads (..., S), weighted and added up. (...)"""
    total = np.zeros(load.shape[:-1])
    for stretch in range(load.shape[-1]):
        value = load[..., stretch]
        for _ in range(SQUARINGS):
            value = value * value
        total += value * weight[stretch]
    return total


def _exchange(search: Search, worst: int) -> bool:
    """Make the best exchange of one thing of the worst rank for one of another rank, or for nothing."""
    mine = np.flatnonzero(search.where == worst)
    if not len(mine):
        return False
    mine = mine[np.argsort(-_heights(search.part[mine], search.weight), kind="stable")[:TALLEST]]
    low = search.height <= search.height.mean()
    low[worst] = False
    if not low.any():
        return False
    others = np.flatnonzero(low[search.where])
    nothing = np.flatnonzero(low)
    rank = np.concatenate([search.where[others], nothing])
    moved = search.part[mine][:, None] - np.concatenate(
        [search.part[others], np.zeros((len(nothing), len(search.weight)))]
    )
    left, grown = search.load[worst] - moved, search.load[rank] + moved
    change = _heights(left, search.weight) + _heights(grown, search.weight)
    gain = search.height[worst] + search.height[rank] - change
    device, host = (
        value[mine][:, None] - np.concatenate([value[others], np.zeros(len(nothing))])
        for value in (search.things.device_bytes, search.things.host_bytes)
    )
    able = _able(search, worst, rank, device, host)
    able &= (_seconds(grown, search) <= search.limit) & (_seconds(left, search) <= search.limit)
    gain = np.where(able, gain, -np.inf)
    row, column = divmod(int(gain.argmax()), gain.shape[1])
    if not gain[row, column] > EPSILON * search.height[worst]:
        return False
    light = int(rank[column])
    search.where[mine[row]] = light
    if column < len(others):
        search.where[others[column]] = worst
    for value, amount in ((search.load, -moved), (search.free, device), (search.free_host, host)):
        value[worst] += amount[row, column]
        value[light] -= amount[row, column]
    both = [worst, light]
    search.height[both] = _heights(search.load[both], search.weight)
    return True


def _seconds(load: Floats, search: Search) -> Floats:
    """Of all stretches together. (..., S) -> (...)"""
    seconds: Floats = (load * search.weight).sum(axis=-1)
    return seconds


def _able(search: Search, worst: int, rank: Ints, device: Floats, host: Floats) -> Bools:
    """Where memory holds the exchange."""
    device_holds = (device <= search.free[rank]) & (-device <= search.free[worst])
    able: Bools = device_holds & (host <= search.free_host[rank]) & (-host <= search.free_host[worst])
    return able
