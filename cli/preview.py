"""dlrmx check: what a recipe says, before anything runs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlrmx.units import format_bytes, format_count, format_number_of

from . import options
from .output import pairs, print_json, print_result

if TYPE_CHECKING:
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
    from dlrmx.recipe.clusters import world_size
    from dlrmx.recipe.notes import notes

    from . import start
    from .data import full_tables, splits_text

    loaded = start.load(recipe, set_, cluster, nodes)
    manifest = start.check_data(loaded) if data else None
    told = [
        *notes(loaded.recipe, ranks=world_size(loaded.profile)),
        *(full_tables(manifest) if manifest else start.missing_files(loaded)),
    ]
    if manifest is None and loaded.recipe.sharding.plan != "auto":
        start.plan(loaded, None)
    if json:
        print_json(recipe=str(loaded.source), ok=True, **_facts(loaded), notes=told)
    else:
        facts = _facts_text(loaded, splits_text(manifest) if manifest else None)
        print_result("\n".join([f"{loaded.source}: ok", facts, *map("note    {}".format, told)]))


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
            "batch": f"{facts['batch']:,} rows over {format_number_of(facts['ranks'], 'rank')}",
        }
    )
