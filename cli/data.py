"""dlrmx data: prepare a recipe's data ahead of a run, and show what the prepared data looks like."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlrmx.errors import InputError
from dlrmx.units import format_metric

from . import options
from .output import print_json, print_result, say

if TYPE_CHECKING:
    from dlrmx.data.fit import Finding
    from dlrmx.data.manifest import Manifest
    from dlrmx.recipe.load import Loaded

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Prepared data: prepare, show.")


@app.command("prepare")
def prepare_data(recipe: options.Recipe, set_: options.Set = None, cluster: options.Cluster = None) -> None:
    """Prepare a recipe's data now; training does it by itself otherwise."""
    from . import start
    from .live import open_view

    loaded = start.load(recipe, set_, cluster)
    with open_view() as view:
        path = start.prepare(loaded, view)
    say(f"prepared; next: dlrmx data show {recipe}")
    print_result(str(path))


@app.command("show")
def show_data(
    recipe: options.Recipe,
    feature: Annotated[str | None, typer.Option("--feature", metavar="NAME", help="All about this feature.")] = None,
    set_: options.Set = None,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """Show a recipe's prepared data: splits, features, load and busiest rows, and whether the recipe fits them."""
    from . import data_text as text
    from .start import load

    loaded = load(recipe, set_, cluster)
    settings = [word for setting in set_ or [] for word in ("-s", setting)]
    path, manifest = _open(loaded, shlex.join([recipe, *settings, *(("--cluster", cluster) if cluster else ())]))
    if feature is not None and feature not in manifest.features:
        dense = f"{feature} is a dense column, of which nothing is counted"
        what = dense if feature in manifest.dense else f"there is no feature {feature}"
        raise InputError(what, hint=f"it has: {', '.join(manifest.features)}")
    names = _row_names(loaded, path, manifest)
    if json:
        found = _findings(loaded, path, manifest)
        fits = all(finding.kind != "no" for finding in found)
        fit = {"fits": fits, "findings": [vars(finding) for finding in found]}
        print_json(path=str(path), **text.manifest_json(manifest, names), fit=fit)
    elif feature is not None:
        print_result(text.one_feature(feature, manifest.features[feature], names[feature]))
    else:
        parts = [text.splits(manifest), text.features(manifest), text.load(manifest), text.busiest(manifest, names)]
        fit_text = text.fit(_findings(loaded, path, manifest))
        head = f"{path}\n{text.overview(manifest)}"
        print_result("\n\n".join([head, *parts, *bad_lines(manifest), fit_text]))


def _open(loaded: "Loaded", words: str) -> "tuple[Path, Manifest]":
    """The recipe's prepared data. Raises InputError where they are not there, or not what their name says."""
    from dlrmx.data.nearby import not_prepared
    from dlrmx.data.prepare import check_prepared, prepared_path

    from .start import root_of

    path = prepared_path(loaded.recipe, root_of(loaded))
    if not path.exists():
        raise not_prepared(loaded.recipe, root_of(loaded), words)
    return path, check_prepared(path)


def _row_names(loaded: "Loaded", path: "Path", manifest: "Manifest") -> dict[str, list[str]]:
    from dlrmx.data.row_names import row_names
    from dlrmx.data.vocabulary_files import verify_vocabularies

    verify_vocabularies(path, manifest)
    return {
        name: row_names(path, loaded.recipe, name, [row for row, _ in facts.top])
        for name, facts in manifest.features.items()
    }


def _findings(loaded: "Loaded", path: "Path", manifest: "Manifest") -> "list[Finding]":
    """Whether the recipe fits the data, and both together the machine or cluster."""
    from dlrmx.data.fit import Finding, findings

    from . import start

    found = findings(loaded.recipe, manifest)
    try:
        planned = start.plan(loaded, path)
    except InputError as error:
        return [*found, Finding("no", f"{loaded.profile.scheduler}: {error}")]
    ranks = f"{planned.world} rank{'s' if planned.world > 1 else ''}"
    return [*found, Finding("ok", f"tables and batch fit the memory of {ranks} ({loaded.profile.scheduler})")]


def splits_text(manifest: "Manifest") -> str:
    """The splits on one line."""
    train = manifest.splits["train"]
    rows = ", ".join(f"{split.rows:,} {name}" for name, split in manifest.splits.items())
    return f"{rows} rows; label mean {format_metric(train.label_mean)}"


def full_tables(manifest: "Manifest") -> list[str]:
    """The features whose vocabulary did not fit its table."""
    from dlrmx.data import fit

    return fit.full_tables(manifest)


def bad_lines(manifest: "Manifest") -> list[str]:
    """What was wrong with the data: bad rows, and bad ids by feature, with their first places; else nothing."""
    rows = manifest.rows
    found = []
    if rows.bad:
        done = "left out" if rows.policy == "skip" else "kept, with what is bad in them as missing"
        found.append(_places(f"{rows.bad:,} of {rows.read:,} rows are bad; {done}:", rows.first))
    for name, facts in manifest.features.items():
        if facts.bad:
            found.append(_places(f"{name}: {facts.bad:,} values are no ids of table {facts.table}:", facts.first_bad))
    return found


def _places(head: str, places: list[str]) -> str:
    return "\n  ".join([head, *places])
