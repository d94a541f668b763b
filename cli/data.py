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
        notes = ["\n".join(f"note    {line}" for line in full_tables(manifest))] if full_tables(manifest) else []
        parts = [str(path), _splits(manifest), _features(manifest), *notes, *bad_lines(manifest)]
        print_result("\n\n".join(parts))


def splits_text(manifest: "Manifest") -> str:
    """The splits on one line."""
    train = manifest.splits["train"]
    rows = ", ".join(f"{split.rows:,} {name}" for name, split in manifest.splits.items())
    return f"{rows} rows; label mean {format_metric(train.label_mean)}"


def full_tables(manifest: "Manifest") -> list[str]:
    """The features whose vocabulary did not fit its table: without a word they would only learn worse."""
    return [
        f"{name}: table {facts.table} is full: {facts.overflow:,} values of its vocabulary have no row "
        f"({facts.unseen:,} look-ups take that of unseen values); give it more rows, or {name} a min_count"
        for name, facts in manifest.features.items()
        if facts.overflow
    ]


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
    header = ["split", "rows", "label mean"]
    rows = [[name, f"{split.rows:,}", format_metric(split.label_mean)] for name, split in manifest.splits.items()]
    if any(split.optimum_ne is not None for split in manifest.splits.values()):
        header.append("optimum NE")
        for row, split in zip(rows, manifest.splits.values(), strict=True):
            row.append("" if split.optimum_ne is None else format_metric(split.optimum_ne))
    return table(header, rows, right=header[1:])


def _features(manifest: "Manifest") -> str:
    header = ["feature", "mean ids", "max ids", "rows used", "missing", "unseen", "bad"]
    rows = [
        [
            name,
            f"{facts.mean_pooling:.2f}",
            str(facts.max_pooling),
            f"{format_count(facts.distinct)} of {format_count(facts.rows)}",
            *(format_count(count) for count in (facts.missing, facts.unseen, facts.bad)),
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
