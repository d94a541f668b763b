"""Decides how each table is cut and where it lies: enumerate, place, check."""

from dlrmx.plan.impossible import explain
from dlrmx.plan.memory import Facts, dense_memory, rank_memory
from dlrmx.plan.options import Ask, choose, enumerate_demands
from dlrmx.plan.place import Overflow, place
from dlrmx.plan.shards import Plan, TablePlan
from dlrmx.plan.validate import plan_problems
from dlrmx.recipe.schema import Recipe

# A table larger than this part of a rank's fair share is cut; the next smaller part is tried where memory does not
# suffice. At 0 all are cut: the most even plan that the constraints allow. (Replicas stay: a small table, its sums and
# its gradient take no more than the exchange buffers that they save.)
FAIR_SHARES = (1.0, 0.5, 0.25, 0.0)


def make_plan(recipe: Recipe, *, world: int, memory_bytes: int, facts: Facts | None = None) -> Plan:
    """The plan for `world` ranks of `memory_bytes` each: the same for the same arguments, on any machine.

    Raises InputError where a constraint asks the impossible, or where no plan fits: it then names the table, the
    bytes that it needs and the bytes free, whether memory or a constraint is to blame, and ways out, each tried.
    """
    ask = Ask(recipe, world, memory_bytes, facts)
    plan = search(ask)
    if isinstance(plan, Overflow):
        raise explain(plan, ask, search)
    return plan


def search(ask: Ask) -> Plan | Overflow:
    """The first of ever more even plans that fits, or what does not fit in the most even one."""
    demands = enumerate_demands(ask)
    free_bytes = ask.usable_bytes - dense_memory(ask.recipe, world=ask.world).total_bytes
    fair_share_bytes = sum(demand.stored_bytes for demand in demands) / ask.world
    for part in FAIR_SHARES:
        large_bytes = part * fair_share_bytes
        kinds = [choose(demand, ask, large_bytes=large_bytes) for demand in demands]
        cuts = [demand.cut(kind, world=ask.world) for demand, kind in zip(demands, kinds, strict=True)]
        placed = place(demands, cuts, ask, free_bytes=free_bytes)
        if not isinstance(placed, Overflow):
            return _checked(Plan(ask.world, placed, notes=_notes(ask.recipe, placed)), ask)
        overflow = placed
    return overflow


def _checked(plan: Plan, ask: Ask) -> Plan:
    """The plan, once it covers every table and fits: anything else is a bug of ours."""
    problems = plan_problems(plan, ask.recipe, world=ask.world)
    assert not problems, problems
    worst = max(memory.total_bytes for memory in rank_memory(plan, ask.recipe, ask.facts))
    assert worst <= ask.usable_bytes, f"{worst} bytes planned on a rank that has {ask.usable_bytes}"
    return plan


def _notes(recipe: Recipe, tables: dict[str, TablePlan]) -> tuple[str, ...]:
    """What a reader of the plan should know."""
    sliced = [name for name, table in tables.items() if len(table.strips) > 1]
    if not sliced or recipe.optimizer.sparse.kind != "rowwise_adagrad":
        return ()
    return (f"row-wise AdaGrad keeps a sum of its own for each column slice of {', '.join(sliced)}",)
