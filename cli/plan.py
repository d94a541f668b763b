"""dlrmx plan: how a recipe's tables would be cut, what each rank would hold, and how long a step would take."""

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlrmx.errors import InputError

from . import options
from .output import print_json, print_result, say, write_new
from .plan_text import plan_text
from .planned import Planned, hours_per_epoch

if TYPE_CHECKING:
    from dlrmx.data.manifest import Manifest
    from dlrmx.plan.shards import Plan
    from dlrmx.recipe.load import Loaded


MANY = 5_000_000  # tables x ranks: up to here a plan takes seconds


def plan(
    recipe: options.Recipe,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the plan, for sharding.plan.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="FILE FILE", help="Show two plan files of the recipe side by side."),
    ] = None,
    set_: options.Set = None,
    cluster: options.Cluster = None,
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="N[,N...]", help="Use this many nodes instead; several give a table."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show where tables would go and what a step would cost."""
    from . import plan_compare, plan_scaling, start

    sizes = _sizes(nodes)
    if compare and (out or len(sizes) > 1) or out and len(sizes) > 1:
        raise InputError("--out, --compare and several --nodes are one question each", hint="ask them one by one")
    loaded = [start.load(recipe, set_, cluster, sizes[0])]
    loaded += [start.load(str(loaded[0].source), set_, cluster, size) for size in sizes[1:]]
    for note in start.missing_files(loaded[0]):
        say(f"note: {note}; planned from what the recipe says")
    if compare:
        plan_compare.show(loaded[0], compare, json=json)
    elif len(loaded) > 1:
        plan_scaling.show(loaded, json=json)
    else:
        _show(loaded[0], out, json=json)


def predicted(loaded: "Loaded") -> Planned:
    """The plan that a job of this recipe would follow, with its prediction. Raises InputError where none fits."""
    from dlrmx.recipe.clusters import workers_per_node

    from . import start

    data = start.prepared(loaded)
    ranks, tables = loaded.profile.nodes * workers_per_node(loaded.profile), len(loaded.recipe.tables)
    if ranks * tables > MANY:
        say(f"planning {tables:,} tables on {ranks:,} ranks: this takes longer than a few seconds")
    return with_prediction(start.plan(loaded, data), loaded, facts_of(data))


def with_prediction(made: "Plan", loaded: "Loaded", facts: "Manifest | None") -> Planned:
    """A plan with what it is predicted to cost on the profile's nodes, as many as it is for."""
    from dlrmx.plan.cost import predict
    from dlrmx.plan.memory import table_bytes
    from dlrmx.plan.topology import topology_of

    topology = topology_of(loaded.profile).sized(world=made.world, ranks_per_node=made.ranks_per_node)
    reserve, kind = loaded.recipe.sharding.reserve, loaded.recipe.optimizer.sparse.kind
    return Planned(
        made,
        predict(made, loaded.recipe, topology, facts),
        topology,
        {name: table_bytes(cut, kind) for name, cut in made.tables.items()},
        int(topology.hbm_bytes * (1 - reserve)),
        reserve,
        _epoch_rows(loaded, facts),
        loaded.recipe.exchange.chunks > 1 or loaded.recipe.exchange.messages > 1,
    )


def _show(loaded: "Loaded", out: Path | None, *, json: bool) -> None:
    planned = predicted(loaded)
    text = planned.plan.to_json()
    if out:
        write_new(out, text)
        say(f"written to {out}; use it with -s sharding.plan={out}")
    if json:
        print_json(plan=json_module.loads(text), hash=planned.plan.hash, **prediction_json(planned))
    else:
        print_result(plan_text(planned))


def prediction_json(planned: Planned) -> dict[str, Any]:
    """What is predicted, for programs; docs/cli.md lists the keys."""
    prediction = planned.prediction
    return {
        "step_s": prediction.step_s,
        "samples_per_s": prediction.samples_per_s,
        "hours_per_epoch": hours_per_epoch(planned),
        "imbalance": prediction.imbalance,
        "usable_bytes": planned.usable_bytes,
        "ranks": [
            {**asdict(memory), "seconds": asdict(stages)}
            for memory, stages in zip(prediction.memory, prediction.ranks, strict=True)
        ],
        "slowest": asdict(prediction.slowest),
        "exposed": asdict(prediction.exposed),
        "traffic": [asdict(entry) for entry in prediction.traffic],
        "table_costs": {name: asdict(cost) for name, cost in prediction.tables.items()},
    }


def _sizes(nodes: str | None) -> list[int | None]:
    """The numbers of nodes that were asked for; [None] for the profile's own."""
    if nodes is None:
        return [None]
    words = nodes.split(",")
    if not all(word.strip().isdecimal() and int(word) >= 1 for word in words):
        raise InputError(f"--nodes {nodes}: is no list of whole numbers", hint="for example --nodes 1,2,4,8")
    return [int(word) for word in words]


def facts_of(data: Path | None) -> "Manifest | None":
    """What the prepared data say of themselves, where there are any."""
    from dlrmx.data.manifest import read_manifest

    return None if data is None else read_manifest(data)


def _epoch_rows(loaded: "Loaded", facts: "Manifest | None") -> int | None:
    data = loaded.recipe.data
    if facts is not None:
        return facts.splits["train"].rows
    if data.kind == "synthetic":
        return round(data.rows * (1 - data.split.fraction("validation") - data.split.fraction("test")))
    return None
