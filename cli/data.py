"""dlrmx data: prepare a recipe's data ahead of a run, and show what the prepared data looks like."""

from typing import TYPE_CHECKING, Any

import typer

from dlrmx.units import format_count, format_metric

from . import options
from .output import print_json, print_result, say, table

if TYPE_CHECKING:
    from dlrmx.data.manifest import Manifest

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
    recipe: options.Recipe, set_: options.Set = None, cluster: options.Cluster = None, json: options.Json = False
) -> None:
    """Show a recipe's prepared data: splits, label means, what each feature looks like."""
    from dlrmx.data.manifest import read_manifest
    from dlrmx.data.prepare import prepared_path

    from .start import load, root_of

    loaded = load(recipe, set_, cluster)
    path = prepared_path(loaded.recipe, root_of(loaded))
    manifest = read_manifest(path)
    if json:
        print_json(path=str(path), **_manifest_json(manifest))
    else:
        parts = [str(path), _splits(manifest), _features(manifest), *bad_lines(manifest)]
        print_result("\n\n".join(parts))


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


def _splits(manifest: "Manifest") -> str:
    rows = [
        [
            name,
            f"{split.rows:,}",
            format_metric(split.label_mean),
            "" if split.optimum_ne is None else format_metric(split.optimum_ne),
        ]
        for name, split in manifest.splits.items()
    ]
    return table(["split", "rows", "label mean", "optimum NE"], rows, right=["rows", "label mean", "optimum NE"])


def _features(manifest: "Manifest") -> str:
    header = ["feature", "mean ids", "max ids", "distinct", "missing", "unseen", "bad"]
    rows = [
        [
            name,
            f"{facts.mean_pooling:.2f}",
            str(facts.max_pooling),
            *(format_count(count) for count in (facts.distinct, facts.missing, facts.unseen, facts.bad)),
        ]
        for name, facts in manifest.features.items()
    ]
    return table(header, rows, right=header[1:])


def _manifest_json(manifest: "Manifest") -> dict[str, Any]:
    from dataclasses import asdict

    splits = {name: asdict(split) for name, split in manifest.splits.items()}
    features = {name: asdict(facts) for name, facts in manifest.features.items()}
    return {
        "fingerprint": manifest.fingerprint,
        "rows": asdict(manifest.rows),
        "splits": splits,
        "features": features,
    }
