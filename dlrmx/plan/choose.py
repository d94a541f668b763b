"""Chooses a form for each table: the cheapest that is not too large for one rank, at a price for memory.

The price (seconds per byte of device memory, and per byte of host memory) is the lowest at which all tables together
fit: so the bytes go to the tables that gain most by them, as in a fractional knapsack.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from dlrmx.plan.options import Options
from dlrmx.plan.workload import Bools, Floats, Ints

# A table's part on one rank may take so much of a rank's fair share of all seconds; the last cuts all that can be cut.
LARGEST_SHARES = (np.inf, 1.0, 0.7, 0.6, 0.5, 0.42, 0.35, 0.25, 0.15, 0.1, 0.05, 0.0)
# And so much of the memory that is free on a rank: the more even the pieces, the fuller ranks can be.
LARGEST_BYTES = (1.0, 0.8, 0.65, 0.57, 0.5, 0.42, 0.35, 0.25, 0.12, 0.05)
FILLED = (0.98, 0.9)  # of the memory of all ranks together, that pieces can be expected to fill
HALVINGS = 24
# Of a byte, in parts of the usual seconds per byte.
LOWEST_PRICE, HIGHEST_PRICE = 1e-6, 1e6


def cheapest(options: Options) -> Ints:
    """The cheapest form of each table that fits a rank that holds nothing else; -1 where none does. (T,)"""
    value = np.where(options.fitting(), options.total_s, np.inf)
    return np.where(np.isfinite(value).any(axis=0), value.argmin(axis=0), -1)


def choices(options: Options) -> list[tuple[float, Ints]]:
    """Forms for all tables, (T,) each, and a bound of the seconds on the most loaded rank; the lowest bound first.

    The forms that take the least memory are among them, or come last.
    """
    every = np.arange(len(options.workload.names))
    world = options.ask.topology.world
    mean = options.total_s[cheapest(options), every].sum() / world
    found: dict[bytes, tuple[float, Ints]] = {}
    for part in LARGEST_BYTES:
        for share in LARGEST_SHARES:
            value = _value(options, share * mean, part)
            for filled in FILLED:
                form = _affordable(options, value, filled)
                seconds = options.total_s[form, every].sum() / world
                found.setdefault(form.tobytes(), (max(seconds, options.largest_s[form, every].max(initial=0.0)), form))
    least = leanest(options)
    found.setdefault(least.tobytes(), (np.inf, least))
    return sorted(found.values(), key=lambda pair: pair[0])


def lean_choices(options: Options) -> Iterator[Ints]:
    """The forms that are most likely to fit, (T,) each: of all that take little memory, and of ever smaller pieces."""
    yield leanest(options)
    for part in LARGEST_BYTES:
        yield _affordable(options, _value(options, np.inf, part), FILLED[0])


def leanest(options: Options) -> Ints:
    """The forms that take the least memory. (T,)"""
    least: Ints = np.where(options.fitting(), options.total_bytes + options.total_host_bytes, np.inf).argmin(axis=0)
    return least


def _value(options: Options, largest_s: float, part: float) -> Floats:
    """Seconds of each form; infinite where it is not allowed, or a smaller one is wanted and there is one. (F, T)"""
    fits = options.fitting()
    small = fits & (options.largest_bytes <= np.maximum(part * options.free_bytes, _least(options.largest_bytes, fits)))
    small &= options.largest_s <= np.maximum(largest_s, _least(options.largest_s, small))
    return np.where(small, options.total_s, np.inf)


def _least(value: Floats, among: Bools) -> Floats:
    least: Floats = np.where(among, value, np.inf).min(axis=0)
    return least


def _affordable(options: Options, value: Floats, filled: float) -> Ints:
    """The cheapest forms that fit all ranks together; where none do, those of a price that saves all it can. (T,)"""
    world = options.ask.topology.world
    room, host_room = filled * world * options.free_bytes, filled * world * options.ask.usable_host_bytes
    device = np.where(options.allowed, options.total_bytes, 0.0)
    host = np.where(options.allowed, options.total_host_bytes, 0.0)
    usual = max(float(options.total_s.min(axis=0).sum()), 1e-12) / max(float(device.max(axis=0).sum()), 1.0)

    def on_device(host_price: float) -> Ints:
        priced = value + host_price * host if host_price else value
        return _lowest_price(lambda price: (priced + price * device).argmin(axis=0), device, room, usual)

    if not host.any():
        return on_device(0.0)
    return _lowest_price(on_device, host, host_room, usual)


def _lowest_price(form_at: Callable[[float], Ints], num_bytes: Floats, room: float, usual: float) -> Ints:
    """The forms at the lowest price of a byte at which they take at most `room`; at the highest where none does."""
    every = np.arange(num_bytes.shape[1])

    def fits(form: Ints) -> bool:
        return bool(num_bytes[form, every].sum() <= room)

    form = form_at(0.0)
    if fits(form):
        return form
    low, high = usual * LOWEST_PRICE, usual * HIGHEST_PRICE
    best = form_at(high)
    if not fits(best):
        return best
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        form = form_at(middle)
        low, high, best = (low, middle, form) if fits(form) else (middle, high, best)
    return best
