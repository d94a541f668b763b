"""Puts things on bins: greedy (longest first) and largest differencing, each followed by a local search.

A bin is a rank, or a node with all its ranks alike. Things and bins have seconds, device bytes and host bytes.

Legend: N things, K bins.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlrmx.plan.workload import Floats, Ints

GOOD = 1.001  # of the mean load: no need to search on
PAIRS_OF = 12  # of the longest things of the most loaded bin, pairs are tried too
EPSILON = 1e-9
SWAPS = 40_000  # at the most, of one local search


@dataclass(frozen=True)
class Things:
    """What has to be placed. (N,) each."""

    seconds: Floats
    device_bytes: Floats
    host_bytes: Floats

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True)
class Bins:
    """Where it can go: seconds that are there already, and bytes that are free. (K,) each."""

    seconds: Floats
    device_bytes: Floats
    host_bytes: Floats

    def __len__(self) -> int:
        return len(self.seconds)

    def after(self, things: Things, where: Ints, *, sign: float = 1.0) -> "Bins":
        """These bins once things lie in them."""

        def sums(value: Floats) -> Floats:
            return np.bincount(where, sign * value, minlength=len(self)).astype(float)

        return Bins(
            self.seconds + sums(things.seconds),
            self.device_bytes - sums(things.device_bytes),
            self.host_bytes - sums(things.host_bytes),
        )

    def without(self, things: Things, where: Ints) -> "Bins":
        """These bins as if things that lie in them did not."""
        return self.after(things, where, sign=-1.0)

    def hold(self) -> bool:
        """Whether nothing is over full, but for rounding."""
        slack = EPSILON * (1 + np.abs(self.device_bytes).max(initial=0.0))
        return bool((self.device_bytes >= -slack).all() and (self.host_bytes >= -slack).all())


@dataclass(frozen=True)
class NoRoom:
    """The first thing that found no room, and the most device and host bytes that any bin had left."""

    thing: int
    free_bytes: float
    free_host_bytes: float


Method = Callable[[Things, Bins], "Ints | NoRoom"]


def greedy(things: Things, bins: Bins) -> Ints | NoRoom:
    """Longest first, each to the least loaded bin with room (the lowest of equals): where each thing goes. (N,)

    Longest by the part of a bin's mean seconds, or of its free bytes, whichever is larger.
    """
    size = things.seconds / max(float(bins.seconds.sum() + things.seconds.sum()), 1e-300)
    for num_bytes, free in ((things.device_bytes, bins.device_bytes), (things.host_bytes, bins.host_bytes)):
        size = np.maximum(size, num_bytes / max(float(free.sum()), 1.0))
    return _in_order(things, bins, np.argsort(-size, kind="stable"), bins.seconds.copy())


def largest_bytes_first(things: Things, bins: Bins) -> Ints | NoRoom:
    """The largest first, each to the bin with most room: what fits where longest first leaves holes too small."""
    order = np.argsort(-(things.device_bytes + things.host_bytes), kind="stable")
    return _in_order(things, bins, order, -bins.device_bytes - bins.host_bytes, by_bytes=True)


def _in_order(things: Things, bins: Bins, order: Ints, fullness: Floats, *, by_bytes: bool = False) -> Ints | NoRoom:
    free, free_host = bins.device_bytes.copy(), bins.host_bytes.copy()
    weight = things.device_bytes + things.host_bytes if by_bytes else things.seconds
    where = np.zeros(len(things), dtype=np.int64)
    for thing in order.tolist():
        device, host = things.device_bytes[thing], things.host_bytes[thing]
        bin_ = int(fullness.argmin()) if len(bins) else 0
        if not len(bins) or free[bin_] < device or free_host[bin_] < host:
            able = (free >= device) & (free_host >= host)
            if not able.any():
                return NoRoom(thing, float(free.max(initial=0.0)), float(free_host.max(initial=0.0)))
            bin_ = int(np.where(able, fullness, np.inf).argmin())
        where[thing] = bin_
        fullness[bin_] += weight[thing]
        free[bin_] -= device
        free_host[bin_] -= host
    return where


def differencing(things: Things, bins: Bins) -> Ints | NoRoom:
    """Karmarkar and Karp's largest differencing, k-way: the two partial partitions whose sums differ most are joined
    in reverse order, until one is left. Memory is looked at afterwards: where it does not hold, greedy goes instead.
    """
    if not len(things) or not len(bins):
        return greedy(things, bins)
    count, num = len(bins), len(things)
    # A partition is its sums in descending order; lines[i] says which bin of which earlier partitions each is made of.
    base = np.argsort(-bins.seconds, kind="stable")
    sums = [bins.seconds[base]]
    parts: list[tuple[int, int, Ints, Ints]] = []
    heap = [(-float(np.ptp(sums[0])), 0)]
    for thing in range(num):
        alone = np.zeros(count)
        alone[0] = things.seconds[thing]
        sums.append(alone)
        heap.append((-float(alone[0]), thing + 1))
    heapq.heapify(heap)
    while len(heap) > 1:
        one, other = heapq.heappop(heap)[1], heapq.heappop(heap)[1]
        joined = sums[one] + sums[other][::-1]
        order = np.argsort(-joined, kind="stable")
        parts.append((one, other, order, count - 1 - order))
        sums.append(joined[order])
        sums[one] = sums[other] = alone[:0]
        heapq.heappush(heap, (-float(sums[-1][0] - sums[-1][-1]), len(sums) - 1))
    where = _unfold(parts, num, base)
    return where if bins.after(things, where).hold() else greedy(things, bins)


def _unfold(parts: list[tuple[int, int, Ints, Ints]], num: int, base: Ints) -> Ints:
    """From the joined partitions back to where each thing lies; the partition of the bins themselves names them."""
    count = len(base)
    place: dict[int, Ints] = {num + len(parts): np.arange(count)}  # by partition: the final bin of each of its bins
    for index in range(len(parts) - 1, -1, -1):
        one, other, from_one, from_other = parts[index]
        mine = place.pop(num + 1 + index)
        for part, order in ((one, from_one), (other, from_other)):
            place[part] = np.empty(count, dtype=np.int64)
            place[part][order] = mine
    names = np.empty(count, dtype=np.int64)
    names[place[0]] = base
    return names[np.array([place[thing + 1][0] for thing in range(num)], dtype=np.int64)]


# ------------------------------------------------------------------------------------ local search


def improved(method: Method) -> Method:
    """The method, and then a local search."""

    def both(things: Things, bins: Bins) -> Ints | NoRoom:
        where = method(things, bins)
        if isinstance(where, NoRoom):
            return where
        mean_s = (bins.seconds.sum() + things.seconds.sum()) / len(bins)
        return improve(things, bins, where, good_s=GOOD * mean_s)

    return both


def improve(things: Things, bins: Bins, where: Ints, *, good_s: float) -> Ints:
    """Take things from the most loaded bin, alone, in pairs or for another thing, as long as its load goes down.

    Ends where no bin has more than `good_s`. Bins that hold stay so. Each change is the best of all, so the result
    is the same everywhere.
    """
    where = where.copy()
    now = bins.after(things, where)
    load, free, free_host = now.seconds, now.device_bytes, now.host_bytes
    for _ in range(SWAPS if len(things) else 0):
        heavy = int(load.argmax())
        if load[heavy] <= good_s:
            break
        change = _best_change(things, where, load, free, free_host, heavy)
        if change is None:
            break
        out, thing, light = change
        for moved, source, target in [*((one, heavy, light) for one in out), *((one, light, heavy) for one in thing)]:
            where[moved] = target
            for value, amount in (
                (load, things.seconds[moved]),
                (free, -things.device_bytes[moved]),
                (free_host, -things.host_bytes[moved]),
            ):
                value[source] -= amount
                value[target] += amount
    return where


def _best_change(
    things: Things, where: Ints, load: Floats, free: Floats, free_host: Floats, heavy: int
) -> tuple[list[int], list[int], int] | None:
    """(what leaves the heavy bin, what comes instead, from or to which bin) that lowers the higher load most."""
    bundles = _bundles(things, np.flatnonzero(where == heavy))
    if not bundles:
        return None
    out_s, out_device, out_host = (
        np.array([sum(value[one] for one in bundle) for bundle in bundles])[:, None]
        for value in (things.seconds, things.device_bytes, things.host_bytes)
    )
    # What comes instead: a thing of another bin, or nothing.
    others = np.flatnonzero(where != heavy)
    nothing = np.delete(np.arange(len(load)), heavy)
    light = np.concatenate([where[others], nothing])
    zeros = np.zeros(len(nothing))
    in_s, in_device, in_host = (
        np.concatenate([value[others], zeros]) for value in (things.seconds, things.device_bytes, things.host_bytes)
    )
    moved = out_s - in_s
    higher = np.maximum(load[heavy] - moved, load[light] + moved)
    device, host = out_device - in_device, out_host - in_host
    able = (device <= free[light]) & (-device <= free[heavy]) & (host <= free_host[light]) & (-host <= free_host[heavy])
    higher = np.where(able, higher, np.inf)
    best = int(higher.argmin())
    row, column = divmod(best, higher.shape[1])
    if not higher[row, column] < load[heavy] * (1 - EPSILON):
        return None
    coming = [int(others[column])] if column < len(others) else []
    return bundles[row], coming, int(light[column])


def _bundles(things: Things, mine: Ints) -> list[list[int]]:
    """Each of these things, and each pair of the longest of them."""
    longest = mine[np.argsort(-things.seconds[mine], kind="stable")].tolist()
    pairs = [[one, other] for index, one in enumerate(longest[:PAIRS_OF]) for other in longest[index + 1 : PAIRS_OF]]
    return [[one] for one in longest] + pairs
