"""Decides how each table is cut and where it lies: enumerate, cost, place, choose."""

from collections.abc import Iterator
from itertools import product

from dlrmx.plan.arrange import Arranged, Overflow, arrange, evened, plan_of, refined, what_lacks
from dlrmx.plan.choose import cheapest, choices, lean_choices
from dlrmx.plan.cost import predict
from dlrmx.plan.facts import Facts
from dlrmx.plan.forms import node_ranks
from dlrmx.plan.impossible import explain
from dlrmx.plan.options import Ask, Options, enumerate_options
from dlrmx.plan.place import differencing, greedy, improved, largest_bytes_first
from dlrmx.plan.prediction import Prediction
from dlrmx.plan.shards import Plan
from dlrmx.plan.style import Style
from dlrmx.plan.topology import Topology
from dlrmx.plan.validate import plan_problems
from dlrmx.recipe.schema import Recipe

METHODS = (improved(differencing), improved(greedy))
THOROUGH = (*METHODS, improved(largest_bytes_first))  # where there is time
PLAIN = (greedy, largest_bytes_first)
ROUNDED = 16  # bytes: each part of a prediction is rounded up
FINALISTS = 3  # of the arrangements, by load: their steps are predicted
FEW = 256  # tables: only where there are few do they have to lie partly in each tier
MANY = 50_000  # tables x ranks: fewer trials will do, they differ little then
CLOSE = 1.003  # of a bound: no need to look for less


def make_plan(recipe: Recipe, topology: Topology, facts: Facts | None = None, *, style: Style | None = None) -> Plan:
    """The plan for these ranks, by default with our exchange: the same for the same arguments, on any machine.

    Raises InputError where a constraint asks the impossible, or where no plan fits: it then names the table, the
    bytes that it needs and the bytes free, whether memory or a constraint is to blame, and ways out, each tried.
    """
    ask = Ask(recipe, topology, facts, style)
    if not recipe.tables:
        return Plan(topology.world, {}, ranks_per_node=node_ranks(topology))
    plan = search(ask)
    if isinstance(plan, Overflow):
        raise explain(plan, ask, first_that_fits)
    return plan


def search(ask: Ask) -> Plan | Overflow:
    """The plan whose step is predicted to be the shortest, or what does not fit in any."""
    for options in _ever_more_tiers(ask):
        if arranged := _arrangements(options):
            plans = [plan_of(evened(one)) for one in arranged[: 1 if _is_large(ask) else FINALISTS]]
            predictions = [predict(plan, ask.recipe, ask.topology, ask.facts, style=ask.style) for plan in plans]
            best = min(range(len(plans)), key=lambda index: predictions[index].step_s)
            _check(plans[best], predictions[best], ask)
            return plans[best]
    return first_that_fits(ask)


def first_that_fits(ask: Ask) -> Plan | Overflow:
    """A plan that fits, whatever its step takes; or what does not fit in the one that takes the least memory."""
    for options in _ever_more_tiers(ask):
        if (cheapest(options) < 0).any():
            continue
        for form, method in product(lean_choices(options), PLAIN):
            arranged = arrange(options, form, method)
            if isinstance(arranged, Arranged):
                return plan_of(arranged)
    return what_lacks(options)


def _ever_more_tiers(ask: Ask) -> Iterator[Options]:
    """Device memory alone; the host's, too; tables that lie partly in each."""
    yield enumerate_options(ask)
    if ask.topology.ddr_bytes and ask.fixed_bytes < ask.usable_bytes:
        yield enumerate_options(ask, host=True)
        if len(ask.recipe.tables) <= FEW:
            yield enumerate_options(ask, host=True, bands=True)


def _arrangements(options: Options) -> list[Arranged]:
    """Tables placed so that they fit, the lowest load first: in each choice of forms that could still lower it."""
    found: list[Arranged] = []
    if (cheapest(options) < 0).any():
        return found
    for bound_s, form in choices(options):
        if found and min(one.load_s for one in found) <= bound_s * CLOSE:
            break
        for method in METHODS if _is_large(options.ask) else THOROUGH:
            arranged = arrange(options, form, method)
            if isinstance(arranged, Arranged):
                found.append(refined(arranged, method))
    return sorted(found, key=lambda one: one.load_s)


def _is_large(ask: Ask) -> bool:
    return len(ask.recipe.tables) * ask.topology.world > MANY


def _check(plan: Plan, prediction: Prediction, ask: Ask) -> None:
    """A plan covers every table and fits: anything else is a bug of ours."""
    problems = plan_problems(plan, ask.recipe, ask.topology)
    assert not problems, problems
    worst = max(rank.total_bytes for rank in prediction.memory)
    worst_host = max(rank.host_bytes for rank in prediction.memory)
    assert worst <= ask.usable_bytes + ROUNDED, f"{worst} bytes planned on a rank that has {ask.usable_bytes}"
    assert worst_host <= ask.usable_host_bytes + ROUNDED, (worst_host, ask.usable_host_bytes)
