"""Splits and moves tables of the most loaded ranks, one at a time, as long as the highest load goes down.

Placement takes each table's form as given. Here a table on the most loaded rank may also be cut by rows over 2, 4 or
more ranks of a node, or be put together again: a few splits fill the gaps that whole tables leave.

Legend: T tables, W ranks, G forms of one strip without host memory (table_wise, table_row_wise over 2, 4, ... ranks).
"""

from dataclasses import dataclass

import numpy as np

from dlrmx.plan.options import Options
from dlrmx.plan.pieces import HBM
from dlrmx.plan.workload import Floats, Ints

EPSILON = 1e-9
CHANGES_PER_RANK = 8  # at the most


@dataclass
class State:
    """What lies where while it is changed."""

    form: Ints  # (T,) index into Options.forms
    first_rank: Ints  # (T,) of tables of one strip
    load_s: Floats  # (W,)
    free_bytes: Floats  # (W,)


def refine(options: Options, state: State, *, good_s: float) -> bool:
    """Change `state` for the better; whether anything was. Ends where no rank has more than `good_s`."""
    movable = _movable(options)
    changed = False
    for _ in range(CHANGES_PER_RANK * len(state.load_s)):
        heavy = int(state.load_s.argmax())
        if state.load_s[heavy] <= good_s or not _lighten(options, movable, state, heavy):
            break
        changed = True
    return changed


def _movable(options: Options) -> list[int]:
    """Forms of one strip in device memory that need placing, fewest ranks first."""
    found = [
        index
        for index, form in enumerate(options.forms)
        if form.kind in ("table_wise", "table_row_wise") and form.tier == HBM
    ]
    return sorted(found, key=lambda index: options.forms[index].group)


def _lighten(options: Options, movable: list[int], state: State, heavy: int) -> bool:
    """Make the best change of a table on the most loaded rank, if there is one."""
    groups = np.array([form.group for form in options.forms])
    can_move = np.isin(state.form, movable)
    on_heavy = can_move & (state.first_rank <= heavy) & (heavy < state.first_rank + groups[state.form])
    found: list[tuple[float, float, int, int, int]] = []  # highest load then, added seconds, table, form, first rank
    for table in np.flatnonzero(on_heavy).tolist():
        load, free = _without(options, state, table)
        for form in movable:
            place = _best_place(options, load, free, table, form, heavy)
            if place is not None and place[0] < state.load_s[heavy] * (1 - EPSILON):
                added = options.total_s[form, table] - options.total_s[state.form[table], table]
                found.append((place[0], float(added), table, form, place[1]))
    if not found:
        return False
    # Of those that bring it half way to the mean the cheapest, else the one that brings it farthest.
    half = (state.load_s[heavy] + state.load_s.mean()) / 2
    enough = [one for one in found if one[0] <= half]
    chosen = min(enough, key=lambda one: one[1:]) if enough else min(found)
    _put(options, state, *chosen[2:])
    return True


def _put(options: Options, state: State, table: int, form: int, first: int) -> None:
    state.load_s, state.free_bytes = _without(options, state, table)
    end = first + options.forms[form].group
    state.load_s[first:end] += options.piece_s[form, table]
    state.free_bytes[first:end] -= options.piece_bytes[form, table]
    state.form[table], state.first_rank[table] = form, first


def _without(options: Options, state: State, table: int) -> tuple[Floats, Floats]:
    """Loads and free bytes as if the table were not there."""
    load, free = state.load_s.copy(), state.free_bytes.copy()
    form, first = state.form[table], state.first_rank[table]
    end = first + options.forms[form].group
    load[first:end] -= options.piece_s[form, table]
    free[first:end] += options.piece_bytes[form, table]
    return load, free


def _best_place(
    options: Options, load: Floats, free: Floats, table: int, form: int, heavy: int
) -> tuple[float, int] | None:
    """(highest load of the ranks touched and of the heavy one, first rank) where the table costs least in this form."""
    group, seconds = options.forms[form].group, options.piece_s[form, table]
    if not np.isfinite(seconds):
        return None
    full = len(load) // group * group
    highest = load[:full].reshape(-1, group).max(axis=1) + seconds
    room = free[:full].reshape(-1, group).min(axis=1) >= options.piece_bytes[form, table]
    if not room.any():
        return None
    place = int(np.where(room, highest, np.inf).argmin())
    return float(max(highest[place], load[heavy])), place * group
