"""The verbs that train: train, resume, evaluate."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dlrmx.errors import InputError

from . import options
from .output import print_result


def train(
    recipe: options.Recipe,
    set_: options.Set = None,
    cluster: options.Cluster = None,
    nodes: options.Nodes = None,
    name: options.Name = None,
    detach: options.Detach = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Train a recipe, as a new run. Ctrl-C saves and stops; a second one kills."""
    from dlrmx.runs.claim import check_name

    from . import attached, start

    loaded = start.load(recipe, set_, cluster, nodes)
    if name is not None:
        check_name(start.root_of(loaded), name)
    if dry_run:
        print_result(attached.dry_run(loaded, name or start.next_name(loaded)))
        return
    raise typer.Exit(attached.train(loaded, name, detach=detach, json=json))


def resume(
    run: options.Run = None,
    from_step: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="STEP", min=0, help="Go on from this step's checkpoint; later ones are kept aside."
        ),
    ] = None,
    set_: options.Set = None,
    cluster: options.Cluster = None,
    nodes: options.Nodes = None,
    detach: options.Detach = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Go on with a run from its newest good checkpoint."""
    from . import again, attached, runs

    paths = runs.find(run)
    loaded = again.load_again(paths, set_, cluster, nodes, from_step)
    again.check_checkpoint(paths, from_step, loaded.recipe)
    if dry_run:
        print_result(attached.dry_run(loaded, paths.name, resume={"from_step": from_step}))
        return
    raise typer.Exit(attached.resume(loaded, paths, from_step, detach=detach, json=json))


def evaluate(
    target: options.RunOrCheckpoint,
    split: Annotated[
        Literal["train", "validation", "test"] | None,
        typer.Option("--split", help="Rows to use.", show_default="test"),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="FILES", help="Use these files instead; may come again.")
    ] = None,
    predict: Annotated[
        Path | None,
        typer.Option(
            "--predict",
            metavar="FILE",
            help="Write the scores of these rows, in their order, to this new Parquet file.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Evaluate a checkpoint: on a split, or on other files."""
    from . import again, attached, checkpoints, other_files

    if data and split:
        raise InputError("--split is of the recipe's own data, which --data replaces: give one of them")
    path = checkpoints.find_good_checkpoint(target)
    loaded = again.load_for_checkpoint(path)
    rows: Literal["train", "validation", "test"] = split or "test"
    if not data and not loaded.recipe.data.split.has_rows(rows):
        what = f"the run's recipe gives the split {rows} no rows: data.split.{rows} is 0"
        raise InputError(what, hint="--split validation or train, or --data FILES")
    asked = other_files.asked(path, predict, split=None if data else rows)
    loaded = other_files.with_files(loaded, data) if data else loaded
    raise typer.Exit(attached.evaluate(loaded, asked, json=json))
