"""Reads a plan file that a recipe names (`sharding.plan`) and holds it to the recipe."""

from dataclasses import replace
from pathlib import Path

from dlrmx.errors import InputError
from dlrmx.plan.shards import Plan
from dlrmx.plan.topology import Topology
from dlrmx.plan.validate import plan_problems
from dlrmx.recipe.schema import Recipe

WAY_OUT = "dlrmx plan RECIPE --json shows a good one; sharding.plan auto makes one"


def load_plan(path: Path, recipe: Recipe, topology: Topology | None = None) -> Plan:
    """The plan in `path` for this recipe, on these ranks where they are given.

    Raises InputError with everything that is wrong in it.
    """
    try:
        plan = Plan.from_json(path.read_text())
        problems = plan_problems(plan, recipe, topology)
    except OSError as error:
        raise InputError(f"{path}: cannot read the plan: {error.strerror}", hint=WAY_OUT) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a plan file: {error!r}", hint=WAY_OUT) from error
    if problems:
        raise InputError([replace(problem, where=str(path)) for problem in problems])
    return plan
