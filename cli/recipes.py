"""dlrmx recipes: the shipped recipes, what a recipe resolves to, a copy to start from, and the schema for editors."""

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .output import WIDTH, print_json, print_result, say, table, write_new

if TYPE_CHECKING:
    from dlrmx.recipe.load import Loaded

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Shipped recipes: list, show, copy; the recipe's schema."
)


@app.command("list")
def list_recipes(json: options.Json = False) -> None:
    """List the shipped recipes."""
    from dlrmx_recipes import shipped

    found = {name: _headline(path) for name, path in shipped().items()}
    if json:
        print_json(recipes=[{"name": name, "about": about} for name, about in found.items()])
    else:
        width = WIDTH - max(map(len, found)) - 2
        lines = {name: wrap(about, width) for name, about in found.items()}
        rows = [("" if index else name, line) for name, about in lines.items() for index, line in enumerate(about)]
        print_result(table(["recipe", "about"], rows))


@app.command("show")
def show_recipe(
    recipe: options.Recipe,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Print every setting, and what set it: default, file, profile or -s.")
    ] = False,
    set_: options.Set = None,
    cluster: options.Cluster = None,
    nodes: options.Nodes = None,
    json: options.Json = False,
) -> None:
    """Print a recipe: its file, or every setting as resolved."""
    import json as json_module

    from dlrmx.recipe.load import find_recipe, load_recipe
    from dlrmx.recipe.yaml_file import read_text

    path = find_recipe(recipe)
    if not (json or resolved or set_ or cluster or nodes):
        print_result(read_text(path).rstrip("\n"))
        return
    settings = _settings(load_recipe(path, set_ or [], cluster=cluster, nodes=nodes))
    if json:
        print_json(source=str(path), settings=settings)
    else:
        rows = [(key, json_module.dumps(entry["value"]), entry["from"]) for key, entry in settings.items()]
        print_result(table(["setting", "value", "from"], rows))


@app.command("copy")
def copy_recipe(
    recipe: options.Recipe,
    to: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to; default: ./RECIPE.yaml.")] = None,
) -> None:
    """Copy a recipe, as a file to edit."""
    from dlrmx.recipe.load import find_recipe
    from dlrmx.recipe.yaml_file import read_text

    source = find_recipe(recipe)
    target = to or Path(source.name)
    write_new(target, read_text(source))
    say(f"copied to {target}; next: dlrmx check {target}")


@app.command("schema")
def show_schema() -> None:
    """Print the recipe's JSON Schema, for editors."""
    import json

    from dlrmx.recipe.reference import json_schema

    print_result(json.dumps(json_schema(), indent=2))


def _headline(path: Path) -> str:
    """The first line of a recipe's header."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _settings(loaded: "Loaded") -> dict[str, dict[str, Any]]:
    """Every setting by dotted key: its value and what set it."""
    from dlrmx.recipe.tree import leaves

    recipe = {key: value for key, value in leaves(loaded.recipe) if not key.startswith(("cluster", "defaults"))}
    profile = {f"cluster.{key}": value for key, value in leaves(loaded.profile)}
    return {
        key: {"value": value, "from": loaded.origins.get(key, "default")}
        for key, value in {**recipe, **profile}.items()
    }
