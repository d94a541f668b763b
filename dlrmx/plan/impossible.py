"""Explains why no plan fits: the table, the bytes, memory or constraint, and ways out that were tried."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from dlrmx.errors import InputError, Problem
from dlrmx.plan.arrange import Overflow
from dlrmx.plan.cost import predict
from dlrmx.plan.options import Ask
from dlrmx.plan.shards import Plan
from dlrmx.recipe.schema import Recipe, TableSharding
from dlrmx.units import format_bytes

Search = Callable[[Ask], Plan | Overflow]
Change = tuple[str, Ask]  # its name, and what would be asked
MOST_SUSPECTS = 8  # constraints that are tried one by one
MOST_DOUBLINGS = 6  # of the number of ranks
NO_LIMIT_BYTES = 1 << 200  # above all that 64-bit settings can ask for together
HALVINGS = 6  # of the gap between the memory there is and a memory that suffices


def explain(overflow: Overflow, ask: Ask, search: Search) -> InputError:
    """The error for a recipe that has no plan. `search` tells whether a changed recipe or cluster has one."""
    blamed = _blamed(overflow, ask, search)
    ways = [*_without_constraints(blamed, ask, search), *_ways_out(ask, search)]
    hint = "Possible solutions:\n" + "\n".join(f"    - {way}" for way in ways or ["smaller tables or a smaller model"])
    if not blamed:
        return InputError([Problem(f"memory: {_shortage(overflow, ask)}", hint=hint)])
    key = f"sharding.tables.{blamed[0]}" if len(blamed) == 1 else "sharding.tables"
    what = f"constraint: {_constraints(blamed, ask.recipe)} forbids every plan that fits; {_shortage(overflow, ask)}"
    return InputError([Problem(what, key=key, hint=hint)])


def _shortage(overflow: Overflow, ask: Ask) -> str:
    """What does not fit, and where a rank's memory went."""
    world, host = ask.topology.world, overflow.tier == "host"
    has = ask.topology.ddr_bytes if host else ask.topology.hbm_bytes
    usable = ask.usable_host_bytes if host else ask.usable_bytes
    memory = "host memory " if host else ""
    if ask.fixed_bytes >= ask.usable_bytes:
        return (
            f"the model without its tables needs {format_bytes(ask.fixed_bytes)} on each of {world} ranks, which "
            f"have {format_bytes(has)}, {format_bytes(has - usable)} of it kept free (sharding.reserve)"
        )
    fixed_bytes = 0 if host else ask.fixed_bytes
    before_bytes = max(0, usable - fixed_bytes - overflow.free_bytes)
    table = ask.recipe.tables[overflow.table]
    fixed = "" if host else f"the dense part takes {format_bytes(fixed_bytes)}, "
    return (
        f"table '{overflow.table}' ({overflow.kind}, {table.rows:,} rows x {table.dim}) needs "
        f"{format_bytes(overflow.needed_bytes)} {memory}on a rank, and {format_bytes(overflow.free_bytes)} are "
        f"free: of {format_bytes(has)} on each of {world} ranks, {format_bytes(has - usable)} are kept free "
        f"(sharding.reserve), {fixed}and what was placed before {format_bytes(before_bytes)}"
    )


# ------------------------------------------------------------------------------------- constraints


def _blamed(overflow: Overflow, ask: Ask, search: Search) -> list[str]:
    """The tables whose constraints stand in the way: one if it alone does, else all, or none."""
    constrained = [name for name in ask.recipe.tables if name in ask.recipe.sharding.tables]
    if not constrained or isinstance(search(_unconstrained(ask, constrained)), Overflow):
        return []
    by_size = sorted(constrained, key=lambda name: -ask.recipe.tables[name].rows * ask.recipe.tables[name].dim)
    suspects = sorted(by_size[:MOST_SUSPECTS], key=lambda name: name != overflow.table)
    for name in suspects:
        if isinstance(search(_unconstrained(ask, [name])), Plan):
            return [name]
    return constrained


def _without_constraints(blamed: list[str], ask: Ask, search: Search) -> Iterator[str]:
    if blamed:
        plan = search(_unconstrained(ask, blamed))
        assert isinstance(plan, Plan)
        kinds = ", ".join(f"'{name}' would be {plan.tables[name].kind}" for name in blamed)
        yield f"leave the constraint out: {kinds}"


def _constraints(names: list[str], recipe: Recipe) -> str:
    return ", ".join(f"{_constraint(recipe.sharding.tables[name])} of table '{name}'" for name in names)


def _constraint(entry: TableSharding) -> str:
    """What a constraint says, as in a recipe."""
    types = [f"types [{', '.join(entry.types)}]"] if entry.types else []
    others = entry.model_dump(exclude_none=True, exclude={"types"})
    return ", ".join([*types, *(f"{key} {value}" for key, value in others.items())])


def _unconstrained(ask: Ask, names: list[str]) -> Ask:
    tables = {name: constraint for name, constraint in ask.recipe.sharding.tables.items() if name not in names}
    return _changed(ask, sharding=ask.recipe.sharding.model_copy(update={"tables": tables}))


# ---------------------------------------------------------------------------------------- ways out


def _ways_out(ask: Ask, search: Search) -> Iterator[str]:
    """Changes of the cluster or the recipe that have a plan: of each kind of change the smallest that does."""
    for kind in (_more_ranks(ask), _more_memory(ask, search), _fp16(ask), _less_state(ask), _smaller_batch(ask)):
        yield from islice((text for text, changed in kind if isinstance(search(changed), Plan)), 1)


def _more_ranks(ask: Ask) -> Iterator[Change]:
    topology = ask.topology
    for doubling in range(1, MOST_DOUBLINGS + 1):
        world = topology.world << doubling
        num_nodes = -(-world // topology.ranks_per_node)
        nodes = f" ({num_nodes} nodes)" if topology.device == "cuda" and num_nodes > 1 else ""
        yield f"{world} ranks{nodes} instead of {topology.world}", replace(ask, topology=topology.sized(world=world))


def _more_memory(ask: Ask, search: Search) -> Iterator[Change]:
    """A device memory per rank near the least that suffices."""
    topology = ask.topology

    def having(num_bytes: int) -> Ask:
        return replace(ask, topology=replace(topology, hbm_bytes=num_bytes))

    # The first plan of a rank without limits fits wherever its largest rank does.
    unlimited = search(having(NO_LIMIT_BYTES))
    if isinstance(unlimited, Overflow):  # of host memory, that a constraint asks for
        return
    worst = max(memory.total_bytes for memory in predict(unlimited, ask.recipe, topology, ask.facts).memory)
    too_few, enough = topology.hbm_bytes, int(worst / (1 - ask.recipe.sharding.reserve)) + 2
    for _ in range(HALVINGS):
        middle = (too_few + enough) // 2
        if isinstance(search(having(middle)), Plan):
            enough = middle
        else:
            too_few = middle
    enough += enough // 100  # rounded to three digits, it must still suffice
    yield f"{format_bytes(enough)} per rank instead of {format_bytes(topology.hbm_bytes)}", having(enough)


def _fp16(ask: Ask) -> Iterator[Change]:
    tables = ask.recipe.tables
    wide = sorted(
        (name for name in tables if tables[name].dtype == "fp32"),
        key=lambda name: -tables[name].rows * tables[name].dim,
    )
    if wide:
        yield f"dtype fp16 for table '{wide[0]}'", _in_fp16(ask, wide[:1])
        yield "dtype fp16 for all tables", _in_fp16(ask, wide)


def _less_state(ask: Ask) -> Iterator[Change]:
    optimizer = ask.recipe.optimizer
    if optimizer.sparse.kind == "adagrad":
        sparse = optimizer.sparse.model_copy(update={"kind": "rowwise_adagrad"})
        changed = _changed(ask, optimizer=optimizer.model_copy(update={"sparse": sparse}))
        yield "optimizer.sparse.kind rowwise_adagrad instead of adagrad", changed


def _smaller_batch(ask: Ask) -> Iterator[Change]:
    train = ask.recipe.train
    for batch in (train.batch // 2, train.batch // 4):
        if batch:
            changed = _changed(ask, train=train.model_copy(update={"batch": batch}))
            yield f"train.batch {batch} instead of {train.batch}", changed


def _in_fp16(ask: Ask, names: list[str]) -> Ask:
    fp16 = {name: ask.recipe.tables[name].model_copy(update={"dtype": "fp16"}) for name in names}
    return _changed(ask, tables={**ask.recipe.tables, **fp16})


def _changed(ask: Ask, **update: Any) -> Ask:
    return replace(ask, recipe=ask.recipe.model_copy(update=update))
