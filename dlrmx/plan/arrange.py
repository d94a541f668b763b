"""From cut tables to a plan: what lies on all ranks is dealt to them, the rest placed on nodes and ranks."""

from dataclasses import dataclass

import numpy as np

from dlrmx.plan.choose import leanest
from dlrmx.plan.cut import Cut, cut_tables
from dlrmx.plan.even import even_out
from dlrmx.plan.forms import Form, node_ranks
from dlrmx.plan.options import Options
from dlrmx.plan.pieces import DEVICE_BYTES, HOST_BYTES, STAGES, TIERS, Column
from dlrmx.plan.place import GOOD, Bins, Method, NoRoom, Things, greedy, improve, largest_bytes_first
from dlrmx.plan.refine import State, refine
from dlrmx.plan.shards import Kind, Plan, Strip, TablePlan
from dlrmx.plan.spread import on_ranks
from dlrmx.plan.workload import Floats, Ints

# The columns of each stretch of a step that tables take part in.
STRETCHES = ([Column.UPDATE, Column.IDS], [Column.LOOKUP, Column.VECTORS], [Column.GRADIENTS])
LARGE = 0.5  # of the memory that is free on a rank
ROUNDS = 8  # of refining and placing anew, at the most


@dataclass(frozen=True)
class Overflow:
    """What found no room: a table's part, what it needs and the most that any (or that its) rank had left."""

    table: str
    kind: Kind
    needed_bytes: int
    free_bytes: int
    tier: str = "device"  # or "host": which memory lacks


@dataclass(frozen=True)
class Arranged:
    """Tables cut and placed: the first rank of each strip, and the ranks with all they hold."""

    cut: Cut
    first_rank: Ints  # (S,)
    ranks: Bins

    @property
    def load_s(self) -> float:
        """Seconds that tables cost the most loaded rank."""
        return float(self.ranks.seconds.max())


def arrange(options: Options, form: Ints, method: Method) -> Arranged | Overflow:
    """These forms, placed by `method`; or what does not fit."""
    cut = cut_tables(options, form)
    if (found := _first_lack(cut)) is not None:
        return found
    first_rank = np.zeros(len(cut.strips), dtype=np.int64)
    ranks = cut.base
    for chosen in _in_turn(cut):
        group = int(cut.strips.ranks[chosen[0]])
        where = _placed(cut, chosen, _groups(ranks, group), method)
        if isinstance(where, Overflow):
            return where
        first_rank[chosen] = where * group
        ranks = _with_groups(ranks, cut, chosen, where, group)
    return Arranged(cut, first_rank, ranks)


def _in_turn(cut: Cut) -> list[Ints]:
    """Strips that are placed together: what fills a good part of a rank, what takes many ranks, and then the rest,
    whose smaller pieces even out what these leave."""
    ranks = cut.strips.ranks
    share = cut.costs[:, DEVICE_BYTES].sum(axis=1) / max(1.0, float(cut.base.device_bytes.min()))
    world = cut.options.ask.topology.world
    alone = (ranks == 1) & (world > 1)
    large = alone & (share > LARGE)
    groups = sorted(set(ranks.tolist()) - {1, world}, reverse=True)
    turns = [large, *(ranks == group for group in groups), alone & ~large]
    return [np.flatnonzero(turn) for turn in turns if turn.any()]


def refined(arranged: Arranged, method: Method) -> Arranged:
    """The same tables, some of them split or put together, where that lowers the highest load."""
    options, best = arranged.cut.options, arranged
    for _ in range(ROUNDS):
        state = State(
            form=best.cut.form.copy(),
            first_rank=_first_ranks(best),
            load_s=best.ranks.seconds.copy(),
            free_bytes=best.ranks.device_bytes.copy(),
        )
        if not refine(options, state, good_s=GOOD * float(best.ranks.seconds.mean())):
            break
        tried = (_at(options, state), arrange(options, state.form, method))
        fitting = [_polished(one) for one in tried if isinstance(one, Arranged)]
        better = min(fitting, key=lambda one: one.load_s, default=best)
        if better.load_s >= best.load_s:
            break
        best = better
    return best


def _polished(arranged: Arranged) -> Arranged:
    """Things of one rank exchanged, once those of several have moved."""
    alone = np.flatnonzero(arranged.cut.strips.ranks == 1)
    if not len(alone) or len(arranged.ranks) == 1:
        return arranged
    things, where = _things(arranged.cut, alone), arranged.first_rank[alone]
    bins = arranged.ranks.without(things, where)
    where = improve(things, bins, where, good_s=GOOD * float(arranged.ranks.seconds.mean()))
    first_rank = arranged.first_rank.copy()
    first_rank[alone] = where
    return Arranged(arranged.cut, first_rank, bins.after(things, where))


def evened(arranged: Arranged) -> Arranged:
    """The same forms, with things of one rank exchanged so that each stretch of a step is even."""
    cut = arranged.cut
    alone, world = np.flatnonzero(cut.strips.ranks == 1), len(arranged.ranks)
    if world == 1 or not len(alone):
        return arranged
    shared = np.flatnonzero(cut.strips.ranks > 1)
    costs = cut.costs[shared]
    base = on_ranks(cut.strips.only(shared), arranged.first_rank[shared], costs, costs, world)
    things = _things(cut, alone)
    where = arranged.first_rank[alone]
    bins = arranged.ranks.without(things, where)
    first_rank = arranged.first_rank.copy()
    first_rank[alone] = even_out(things, _by_stretch(cut.costs[alone]), bins, _by_stretch(base), where)
    return Arranged(cut, first_rank, bins.after(things, first_rank[alone]))


def _by_stretch(costs: Floats) -> Floats:
    """Seconds between two exchanges. (P, C) -> (P, S)"""
    return np.stack([costs[:, stretch].sum(axis=1) for stretch in STRETCHES], axis=1)


def _at(options: Options, state: State) -> Arranged | None:
    """Tables in these forms at these ranks; None where memory does not hold them after all."""
    cut = cut_tables(options, state.form)
    first_rank, ranks = state.first_rank[cut.strips.table], cut.base
    for group in sorted(set(cut.strips.ranks.tolist()) - {options.ask.topology.world}):
        chosen = np.flatnonzero(cut.strips.ranks == group)
        ranks = _with_groups(ranks, cut, chosen, first_rank[chosen] // group, group)
    return Arranged(cut, first_rank, ranks) if ranks.hold() else None


def _first_ranks(arranged: Arranged) -> Ints:
    """By table: the first rank of its strip. (T,)"""
    found = np.zeros(len(arranged.cut.form), dtype=np.int64)
    found[arranged.cut.strips.table] = arranged.first_rank
    return found


def _placed(cut: Cut, chosen: Ints, bins: Bins, method: Method) -> Ints | Overflow:
    """Where these strips go among the bins."""
    where = method(_things(cut, chosen), bins)
    if isinstance(where, NoRoom):
        return _overflow(cut, int(chosen[where.thing]), where.free_bytes, where.free_host_bytes)
    return where


def _things(cut: Cut, chosen: Ints) -> Things:
    costs = cut.costs[chosen]
    return Things(costs[:, STAGES].sum(axis=1), costs[:, DEVICE_BYTES].sum(axis=1), costs[:, HOST_BYTES].sum(axis=1))


def _groups(ranks: Bins, group: int) -> Bins:
    """Neighbouring ranks of one node as bins: of each group the highest load and the least room."""
    full = len(ranks) // group * group
    return Bins(
        ranks.seconds[:full].reshape(-1, group).max(axis=1),
        ranks.device_bytes[:full].reshape(-1, group).min(axis=1),
        ranks.host_bytes[:full].reshape(-1, group).min(axis=1),
    )


def _with_groups(ranks: Bins, cut: Cut, chosen: Ints, where: Ints, group: int) -> Bins:
    """The ranks once each group holds its strips."""
    count, costs = len(ranks) // group, cut.costs[chosen]

    def each(columns: list[Column]) -> Floats:
        of_group = np.bincount(where, costs[:, columns].sum(axis=1), minlength=count)
        return np.concatenate([np.repeat(of_group, group), np.zeros(len(ranks) - count * group)])

    return Bins(
        ranks.seconds + each(STAGES), ranks.device_bytes - each(DEVICE_BYTES), ranks.host_bytes - each(HOST_BYTES)
    )


# ------------------------------------------------------------------------------------ what lacks


def what_lacks(options: Options) -> Overflow:
    """What does not fit, of tables none of whose forms fits a rank, or of the forms that take the least memory."""
    every = np.arange(len(options.workload.names))
    needed = np.where(options.allowed, options.largest_bytes, np.inf)
    without_form = ~options.fitting().any(axis=0)
    if without_form.any():
        form = needed.argmin(axis=0)
        table = int(np.where(without_form, needed[form, every], -1.0).argmax())
        fits = needed[form[table], table] <= options.free_bytes
        host = options.largest_host_bytes[form[table], table]
        name, kind = options.workload.names[table], options.forms[form[table]].kind
        if fits:
            return Overflow(name, kind, int(host), options.ask.usable_host_bytes, "host")
        return Overflow(name, kind, int(needed[form[table], table]), max(options.free_bytes, 0))
    for method in (largest_bytes_first, greedy):
        found = arrange(options, leanest(options), method)
    assert isinstance(found, Overflow)
    return found


def _first_lack(cut: Cut) -> Overflow | None:
    """The largest table that lies on all ranks, where these do not hold what lies on all of them."""
    if cut.base.hold():
        return None
    options, every = cut.options, np.arange(len(cut.form))
    on_all = [
        options.forms[one].kind == "data_parallel" or options.forms[one].ranks(options.ask.topology) > 1
        for one in cut.form
    ]
    device_lacks = bool((cut.base.device_bytes < 0).any())
    need = (options.largest_bytes if device_lacks else options.largest_host_bytes)[cut.form, every]
    free = float((cut.base.device_bytes if device_lacks else cut.base.host_bytes).min())
    table = int(np.where(on_all, need, -1.0).argmax())
    kind = options.forms[cut.form[table]].kind
    return Overflow(
        options.workload.names[table],
        kind,
        int(need[table]),
        max(0, int(free + need[table])),
        "device" if device_lacks else "host",
    )


def _overflow(cut: Cut, strip: int, free_bytes: float, free_host_bytes: float) -> Overflow:
    table, costs = int(cut.strips.table[strip]), cut.costs[strip]
    name, kind = cut.options.workload.names[table], cut.options.forms[cut.form[table]].kind
    needed, host = costs[DEVICE_BYTES].sum(), costs[HOST_BYTES].sum()
    if host > free_host_bytes >= 0 and needed <= free_bytes:
        return Overflow(name, kind, int(host), int(free_host_bytes), "host")
    return Overflow(name, kind, int(needed), int(max(free_bytes, 0)))


# -------------------------------------------------------------------------------------- the plan


def plan_of(arranged: Arranged) -> Plan:
    """The plan's form of it."""
    cut, first_rank = arranged.cut, arranged.first_rank
    recipe, topology = cut.options.ask.recipe, cut.options.ask.topology
    strips: list[list[Strip]] = [[] for _ in recipe.tables]
    parts = zip(
        cut.spans,
        cut.strips.table.tolist(),
        first_rank.tolist(),
        cut.strips.ranks.tolist(),
        cut.strips.tier.tolist(),
        cut.strips.cache_ratio.tolist(),
        strict=True,
    )
    for span, table, first, ranks, tier, ratio in parts:
        begin, end, left, right = span
        strips[table].append(Strip(begin, end, left, right, first, ranks, TIERS[tier], ratio))
    tables = {}
    for index, (name, settings) in enumerate(recipe.tables.items()):
        form: Form = cut.options.forms[cut.form[index]]
        tables[name] = TablePlan(
            settings.rows, settings.dim, settings.dtype, form.kind, form.route, tuple(strips[index])
        )
    return Plan(topology.world, tables, ranks_per_node=node_ranks(topology), notes=_notes(cut))


def _notes(cut: Cut) -> tuple[str, ...]:
    """What a reader of the plan should know."""
    recipe = cut.options.ask.recipe
    names = [name for name, one in zip(recipe.tables, cut.form, strict=True) if cut.options.forms[one].slices > 1]
    if not names or recipe.optimizer.sparse.kind != "rowwise_adagrad":
        return ()
    return (f"row-wise AdaGrad keeps a sum of its own for each column slice of {', '.join(names)}",)
