"""dlrmx check and dlrmx plan: what a recipe says and how its tables would be cut, before anything runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlrmx.units import format_bytes, format_count

from . import options
from .output import bars, pairs, print_json, print_result, say, table

if TYPE_CHECKING:
    from dlrmx.plan.memory import RankMemory
    from dlrmx.plan.shards import Plan, TablePlan
    from dlrmx.recipe.load import Loaded


def check(
    recipe: options.Recipe,
    data: Annotated[
        bool, typer.Option("--data", help="Also prepare the data, or verify it, and plan with it.")
    ] = False,
    set_: options.Set = None,
    cluster: options.Cluster = None,
    nodes: options.Nodes = None,
    json: options.Json = False,
) -> None:
    """Check a recipe: all its problems at once."""
    from dlrmx.recipe.rules import notes

    from . import start
    from .data import full_tables, splits_text

    loaded = start.load(recipe, set_, cluster, nodes)
    manifest = start.check_data(loaded) if data else None
    told = [*notes(loaded.recipe), *(full_tables(manifest) if manifest else start.missing_files(loaded))]
    if manifest is None and loaded.recipe.sharding.plan != "auto":
        start.plan(loaded, None)
    if json:
        print_json(recipe=str(loaded.source), ok=True, **_facts(loaded), notes=told)
    else:
        facts = _facts_text(loaded, splits_text(manifest) if manifest else None)
        print_result("\n".join([f"{loaded.source}: ok", facts, *map("note    {}".format, told)]))


def plan(
    recipe: options.Recipe,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the plan, for sharding.plan.")
    ] = None,
    set_: options.Set = None,
    cluster: options.Cluster = None,
    nodes: options.Nodes = None,
    json: options.Json = False,
) -> None:
    """Show where each table would go, and the bytes on each rank."""
    import json as json_module

    from dlrmx.plan.memory import rank_memory

    from . import start

    loaded = start.load(recipe, set_, cluster, nodes)
    for note in start.missing_files(loaded):
        say(f"note: {note}; planned from what the recipe says")
    planned = start.plan(loaded, start.prepared(loaded))
    memory = rank_memory(planned, loaded.recipe)
    if out:
        out.write_text(planned.to_json())
        say(f"written to {out}; use it with -s sharding.plan={out}")
    if json:
        print_json(plan=json_module.loads(planned.to_json()), hash=planned.hash, ranks=[_rank_json(m) for m in memory])
    else:
        print_result("\n\n".join([_placement(planned, loaded), _ranks(memory, loaded), *planned.notes]))


def _facts(loaded: "Loaded") -> dict[str, Any]:
    """What a recipe amounts to: tables, their bytes, and the ranks that would train it."""
    from dlrmx.plan.memory import table_bytes
    from dlrmx.recipe.clusters import world_size

    recipe = loaded.recipe
    kind = recipe.optimizer.sparse.kind
    return {
        "name": recipe.name,
        "model": recipe.model.kind,
        "data": recipe.data.kind,
        "tables": len(recipe.tables),
        "features": len(recipe.features),
        "rows": sum(table.rows for table in recipe.tables.values()),
        "bytes": sum(table_bytes(table, kind) for table in recipe.tables.values()),
        "ranks": world_size(loaded.profile),
        "batch": recipe.train.batch,
    }


def _facts_text(loaded: "Loaded", splits: str | None) -> str:
    facts = _facts(loaded)
    return pairs(
        {
            **({} if splits is None else {"data": splits}),
            "model": f"{facts['model']} on {facts['data']} data",
            "tables": f"{facts['tables']} with {format_count(facts['rows'])} rows, for {facts['features']} features",
            "bytes": f"{format_bytes(facts['bytes'])} of tables and their optimizer state",
            "batch": f"{facts['batch']:,} rows over {facts['ranks']} ranks",
        }
    )


def _placement(planned: "Plan", loaded: "Loaded") -> str:
    header = ["table", "rows", "dim", "dtype", "type", "ranks", "bytes"]
    rows = [_table_row(name, cut, planned.world, loaded) for name, cut in planned.tables.items()]
    return table(header, rows, right=["rows", "dim", "bytes"])


def _table_row(name: str, cut: "TablePlan", world: int, loaded: "Loaded") -> list[str]:
    from dlrmx.plan.memory import table_bytes

    size = table_bytes(cut, loaded.recipe.optimizer.sparse.kind)
    copied = cut.kind == "data_parallel"
    holders = range(world) if copied else sorted({part.rank for part in cut.rectangles(name)})
    ranks = "all" if len(holders) == world else _ranges(holders)
    return [
        name,
        f"{cut.rows:,}",
        str(cut.dim),
        cut.dtype,
        cut.kind,
        ranks,
        format_bytes(size * (world if copied else 1)),
    ]


def _ranges(ranks: Sequence[int]) -> str:
    """Ranks as runs: [0, 1, 2, 5] -> '0-2, 5'."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _ranks(memory: "list[RankMemory]", loaded: "Loaded") -> str:
    """Bars beside the fullest rank's, then what each could hold: full bars are no full memory."""
    from dlrmx.recipe.clusters import rank_memory_bytes

    reserve = loaded.recipe.sharding.reserve
    usable = int(rank_memory_bytes(loaded.profile) * (1 - reserve))
    shown = bars({f"rank {rank}": (use.total_bytes, _memory_text(use)) for rank, use in enumerate(memory)})
    return (
        f"{shown}\na rank may fill {format_bytes(usable)}; {reserve:.0%} of its memory is kept free (sharding.reserve)"
    )


def _memory_text(use: "RankMemory") -> str:
    parts = {
        "tables": use.weights_bytes,
        "state": use.state_bytes,
        "dense": use.dense_bytes,
        "exchange": use.exchange_bytes,
    }
    split = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
    return f"{format_bytes(use.total_bytes)} ({split})"


def _rank_json(use: "RankMemory") -> dict[str, int]:
    from dataclasses import asdict

    return asdict(use)
