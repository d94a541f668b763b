"""The hops of the exchange: to which rank each id goes first, and from there.

There is one hop among all ranks, and a second one inside each node where a table's route is by_node. A flat table's
ids go to the ranks that hold their rows. A by_node table's go to one rank of each node that holds some, the adder; it
passes them on inside the node, adds up what the holders find, and sends the owner of the sample one vector per bag. The
adder has the owner's local index, so that a node's ranks share this work and a link carries no detour; where the last
node is too small for that, they take turns.

Legend: S slots of a hop, M members of a hop.
"""

from dataclasses import dataclass

from dlrmx.parallel.layout import Layout, Slot


@dataclass(frozen=True)
class Course:
    """Where one slot's ids go in a hop. An id is a row number less `shift` on arrival.

    An id of part k of the strip goes to member targets[k], as its row number less offsets[k].
    """

    shift: int
    targets: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Hop:
    """One all-to-all among `members`, seen from one of them."""

    members: tuple[int, ...]  # ranks of the world
    slots: tuple[int, ...]  # the layout's slots that travel here
    fused: tuple[int, ...]  # the layout's fused tables that they are of
    ranges: tuple[tuple[int, int], ...]  # per fused table [first, last) into slots
    widths: tuple[int, ...]  # per fused table
    courses: tuple[Course, ...]  # per slot
    served: tuple[tuple[int, ...], ...]  # per member, the places in `slots` of what it is sent


def all_ranks(layout: Layout, rank: int) -> Hop:
    """The hop that every id takes, as `rank` sees it."""
    slots = tuple(range(len(layout.slots)))
    members = tuple(range(layout.world))
    courses = tuple(_first(layout, layout.slots[slot], rank) for slot in slots)
    served: list[list[int]] = [[] for _ in members]
    for slot in slots:
        holders = layout.holders(slot)
        if layout.fused[layout.slots[slot].fused].route == "by_node":
            holders = [member for node in sorted({_node(layout, h) for h in holders}) for member in _of(layout, node)]
        for holder in holders:
            served[holder].append(slot)
    return _hop(layout, members, slots, courses, served)


def own_node(layout: Layout, rank: int) -> Hop | None:
    """The hop inside `rank`'s node; None where no table is routed by node."""
    by_node = {index for index, key in enumerate(layout.fused) if key.route == "by_node"}
    slots = tuple(index for index, slot in enumerate(layout.slots) if slot.fused in by_node)
    if not slots:
        return None
    members = _of(layout, _node(layout, rank))
    courses = tuple(_second(layout.slots[slot], members) for slot in slots)
    holders = [set(layout.holders(slot)) for slot in slots]
    served = [[place for place, held in enumerate(holders) if member in held] for member in members]
    return _hop(layout, members, slots, courses, served)


def _hop(
    layout: Layout,
    members: tuple[int, ...],
    slots: tuple[int, ...],
    courses: tuple[Course, ...],
    served: list[list[int]],
) -> Hop:
    of_slot = [layout.slots[slot].fused for slot in slots]
    fused = tuple(sorted(set(of_slot)))
    firsts = [of_slot.index(key) for key in fused]
    ranges = tuple(zip(firsts, [*firsts[1:], len(slots)], strict=True)) if fused else ()
    widths = tuple(layout.fused[key].width for key in fused)
    return Hop(members, slots, fused, ranges, widths, courses, tuple(map(tuple, served)))


def _first(layout: Layout, slot: Slot, owner: int) -> Course:
    """From the owner of samples to holders, or to the adder of each node."""
    cuts, first = slot.strip.row_cuts(), slot.strip.first_rank
    ranks = range(first, first + slot.strip.num_ranks)
    if layout.fused[slot.fused].route == "flat":
        return Course(0, tuple(ranks), tuple(cut - base for cut, base in zip(cuts[:-1], slot.bases, strict=True)))
    nodes = [_node(layout, rank) for rank in ranks]
    starts = {node: _node_start(slot, _of(layout, node)) for node in set(nodes)}
    return Course(0, tuple(_adder(layout, owner, node) for node in nodes), tuple(starts[node] for node in nodes))


def _second(slot: Slot, members: tuple[int, ...]) -> Course:
    """From an adder to the holders in its node; what lies elsewhere never comes."""
    cuts, first = slot.strip.row_cuts(), slot.strip.first_rank
    parts = [(first + k in members, k) for k in range(slot.strip.num_ranks)]
    targets = tuple(members.index(first + k) if here else 0 for here, k in parts)
    offsets = tuple(cuts[k] - slot.bases[k] if here else 0 for here, k in parts)
    return Course(_node_start(slot, members), targets, offsets)


def _node_start(slot: Slot, members: tuple[int, ...]) -> int:
    """The first row of a slot that a node holds."""
    strip = slot.strip
    part = max(members[0], strip.first_rank) - strip.first_rank
    return strip.row_cuts()[min(part, strip.num_ranks)]


def _adder(layout: Layout, owner: int, node: int) -> int:
    members = _of(layout, node)
    return members[owner % layout.ranks_per_node % len(members)]


def _node(layout: Layout, rank: int) -> int:
    return rank // layout.ranks_per_node


def _of(layout: Layout, node: int) -> tuple[int, ...]:
    """The ranks of a node; the last may have fewer than the others."""
    first = node * layout.ranks_per_node
    return tuple(range(first, min(first + layout.ranks_per_node, layout.world)))
