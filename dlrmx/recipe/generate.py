"""Tables and features drawn from distributions: `generate` becomes entries of `tables`, `features` and `data.pooling`.

Sizes are the quantiles of their distributions, dealt to the tables in a seeded order: so the totals and means are met
for any number of tables, and no luck of a draw is in them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dlrmx.errors import Problem
from dlrmx.recipe.schema import Generate, GeneratedDim, Name, Table
from dlrmx.recipe.yaml_file import Document, place_of

COLUMN_STEP = 4  # dims are multiples of it
# A synthetic bag's longest may be so many times its mean; the planner reads the mean only.
MOST_OF_MEAN = 4
MOST_ROWS = next(limit.lt for limit in Table.model_fields["rows"].metadata if hasattr(limit, "lt")) - 1
MOST_IDS = 10_000


def expand(document: Document) -> Document:
    """The recipe with its generated tables, features and poolings in place, and without `generate`.

    Where `generate` is not valid by itself it stays, for the schema to say so. Entries of the recipe's own win.
    """
    raw = document.value
    if not raw.get("generate"):
        return document
    try:
        groups: dict[str, Generate] = TypeAdapter(dict[Name, Generate]).validate_python(raw["generate"])
    except ValidationError:
        return document
    problems = [*_problems(groups, raw)]
    if problems:
        placed = [replace(problem, where=place_of(problem.key, document.places)) for problem in problems]
        return replace(document, problems=[*document.problems, *placed])
    tables: dict[str, Any] = {}
    pooling: dict[str, Any] = {}
    places: dict[str, str] = {}
    for group, asked in groups.items():
        drawn, means = draw(group, asked)
        tables |= drawn
        where = place_of(f"generate.{group}", document.places)
        keys = ("tables.{}.rows", "tables.{}.dim", "data.pooling.{}.mean", "data.pooling.{}.max")
        places |= {key.format(name): where for name in drawn for key in keys}
        pooling |= {
            name: {"mean": mean, "max": min(MOST_IDS, math.ceil(MOST_OF_MEAN * mean))}
            for name, mean in means.items()
            if mean != 1
        }
    expanded = {key: value for key, value in raw.items() if key != "generate"}
    expanded["tables"] = _merged(tables, raw.get("tables"))
    expanded["features"] = _merged(dict.fromkeys(tables), raw.get("features"))
    expanded["data"] = {**raw["data"], "pooling": _merged(pooling, raw["data"].get("pooling"))}
    return replace(document, value=expanded, places={**places, **document.places})


def draw(group: str, asked: Generate) -> tuple[dict[str, dict[str, int]], dict[str, float]]:
    """The group's tables (rows, dim) and each feature's mean pooling, by name."""
    from random import Random  # with `statistics` below: only recipes that generate pay for them

    count = asked.tables
    names = [f"{group}{k:0{len(str(count - 1))}d}" for k in range(count)]
    dims, shares, means = _dims(count, asked.dim), _log_normal(count, asked.spread), _pooling(asked)
    for what, values in (("dim", dims), ("rows", shares), ("pooling", means)):
        Random(f"{asked.seed} {what}").shuffle(values)
    tables = {
        name: {"rows": n, "dim": dim} for name, n, dim in zip(names, _rows(asked, shares, dims), dims, strict=True)
    }
    return tables, dict(zip(names, means, strict=True))


def _problems(groups: dict[str, Generate], raw: dict[str, Any]) -> list[Problem]:
    """What the settings of a group say against each other, or against the data."""
    found = []
    data = raw.get("data")
    if not isinstance(data, dict) or data.get("kind") != "synthetic":
        found.append(Problem("generated features have no columns to read", key="generate", hint="data.kind: synthetic"))
    for group, asked in groups.items():
        key, dim = f"generate.{group}", asked.dim
        if (asked.rows is None) == (asked.parameters is None):
            found.append(Problem("needs either `rows` or `parameters`", key=key))
        elif (least := asked.tables * (1 if asked.rows else dim.max)) > (asked.rows or asked.parameters or 0):
            what = f"{asked.tables:,} tables of at least one row need {least:,} or more"
            found.append(Problem(what, key=f"{key}.{'rows' if asked.rows else 'parameters'}"))
        elif max(_rows(asked, _log_normal(asked.tables, asked.spread), [dim.min] * asked.tables)) > MOST_ROWS:
            what = f"the largest table would have more than {MOST_ROWS:,} rows"
            found.append(Problem(what, key=key, hint="a smaller `spread`, or more tables"))
        if not dim.min <= dim.mean <= dim.max:
            found.append(Problem(f"must be between {dim.min} and {dim.max}, not {dim.mean:g}", key=f"{key}.dim.mean"))
    return found


def _merged(drawn: dict[str, Any], own: Any) -> Any:
    """Drawn entries with what the recipe says of them, then its others; what is no mapping is left to be refused."""
    if own is None:
        return drawn
    if not isinstance(own, dict):
        return own
    both = {name: {**(drawn[name] or {}), **(own[name] or {})} for name in drawn.keys() & own.keys()}
    return {**drawn, **own, **both}


# --------------------------------------------------------------------------------------- distributions


def _dims(count: int, dim: GeneratedDim) -> list[int]:
    """min + span u^a for even u, narrowest first: each the mean of its stratum, so that their mean is exact.

    The mean of u^a is 1 / (a + 1), so a + 1 = span / (mean - min). Rounding errors are carried on.
    """
    span = dim.max - dim.min
    share = (dim.mean - dim.min) / span if span else 0.0
    edges = [(k / count) ** (1 / share) if share else 0.0 for k in range(count + 1)]
    found, carried = [], 0.0
    for k in range(count):
        wanted = dim.min + span * count * share * (edges[k + 1] - edges[k]) + carried
        width = min(dim.max, max(dim.min, COLUMN_STEP * round(wanted / COLUMN_STEP)))
        carried = wanted - width
        found.append(width)
    return found


def _log_normal(count: int, spread: float) -> list[float]:
    """The quantiles of a log-normal distribution of median 1, the smallest first."""
    from statistics import NormalDist

    normal = NormalDist()
    return [math.exp(spread * normal.inv_cdf((k + 0.5) / count)) for k in range(count)]


def _pooling(asked: Generate) -> list[float]:
    values = _log_normal(asked.tables, asked.pooling.spread)
    scale = asked.pooling.mean * asked.tables / sum(values)
    return [round(value * scale, 4) for value in values]


def _rows(asked: Generate, shares: Sequence[float], dims: Sequence[int]) -> list[int]:
    """Rows by share, at least one each. Of `rows` in all the sum is exact; of `parameters`, to half a row a table."""
    if asked.parameters is not None:
        scale = asked.parameters / sum(share * dim for share, dim in zip(shares, dims, strict=True))
        return [max(1, round(share * scale)) for share in shares]
    assert asked.rows is not None
    above = asked.rows - len(shares)  # one row each is dealt beforehand
    total = sum(shares)
    ends = [round(above * reached / total) for reached in accumulate(shares)]
    return [1 + end - start for start, end in zip([0, *ends], ends, strict=False)]
