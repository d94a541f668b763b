"""dlrmx clusters: the cluster profiles found here, what one says, and how fast it is."""

import json as json_module
import time
from typing import Annotated, Any

import typer

from . import options
from .output import pairs, print_json, print_result, say, screen_width, table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Cluster profiles: where a recipe runs.")


@app.command("list")
def list_clusters(json: options.Json = False) -> None:
    """List the cluster profiles found from this folder."""
    from dlrmx.recipe.clusters import profile_files, profile_names

    files = profile_files()
    found = {name: str(files.get(name, "built in")) for name in profile_names()}
    if json:
        print_json(clusters=[{"name": name, "source": source} for name, source in found.items()])
    else:
        print_result(table(["cluster", "from"], list(found.items()), width=screen_width()))


@app.command("show")
def show_cluster(
    name: Annotated[str, typer.Argument(metavar="[CLUSTER]", help="Name of a profile.")] = "local",
    json: options.Json = False,
) -> None:
    """Print a cluster profile."""
    from dlrmx.plan.topology import counted_on
    from dlrmx.recipe.clusters import find_profile
    from dlrmx.recipe.tree import leaves

    profile = find_profile(name)
    numbers = counted_on(profile)
    if json:
        print_json(name=name, profile=profile.model_dump(mode="json"), counted_on=numbers)
        return
    said = {key: _as_written(value) for key, value in leaves(profile)}
    counts = {f"node.{key}": f"{number:.4g}" for key, number in numbers.items()}
    print_result(pairs({key: text for key, text in said.items() if text or not key.startswith("node")} | counts))


def _as_written(value: Any) -> str:
    """A setting's value as a profile has it; nothing where it has none."""
    if value is None or isinstance(value, str):
        return value or ""
    return json_module.dumps(value, ensure_ascii=False, default=lambda model: model.model_dump(exclude_none=True))


@app.command("measure")
def measure_cluster(
    name: Annotated[str, typer.Argument(metavar="[CLUSTER]", help="Name or file of a profile.")] = "local",
    json: options.Json = False,
) -> None:
    """Measure a node with a profile's workers, and write what plans count on into the profile."""
    from dlrmx.launch.measure import measure, measured_node, write_node
    from dlrmx.recipe.clusters import find_profile, node_of, profile_path, workers_per_node
    from dlrmx.recipe.tree import leaves
    from dlrmx.units import format_number_of

    profile = find_profile(name)
    where = "here" if profile.scheduler == "local" else f"on a node of {name}, by a job"
    workers = format_number_of(workers_per_node(profile), "worker")
    say(f"measuring {where}, with {workers}: about a minute; other work on the machine spoils it")
    measured = measure(profile, say)
    node, path = measured_node(measured, node_of(profile)), profile_path(name)
    write_node(node, path, f"measured {time.strftime('%Y-%m-%d')} with {format_number_of(measured.world, 'worker')}")
    if json:
        print_json(file=str(path), node=node.model_dump(exclude_none=True), **measured.found_json())
    else:
        found = {key: str(value) for key, value in leaves(node, "node") if value is not None}
        print_result(f"{pairs(found)}\nwritten to {path}")
