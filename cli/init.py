"""dlrmx init: a recipe drafted from files."""

import os
from pathlib import Path
from typing import Annotated

import typer

from .output import print_result, say, write_new


def init(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE...", help="CSV, TSV or Parquet files, or patterns.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the recipe to this new file, not to stdout."),
    ] = None,
) -> None:
    """Draft a commented recipe from CSV, TSV or Parquet files."""
    from dlrmx.data.draft import draft
    from dlrmx.data.draft_text import recipe_text
    from dlrmx.data.files import as_pattern
    from dlrmx.data.survey import survey

    patterns = [as_pattern(table) for table in tables]
    found = survey(patterns)
    folder = Path() if out is None else out.parent
    text = recipe_text(found, draft(found), [_from(pattern, folder) for pattern in patterns])
    if out is None:
        print_result(text.rstrip("\n"))
        say("look it over, and save it with -o FILE")
        return
    write_new(out, text)
    say(f"written to {out}; look it over, then: dlrmx check {out}")


def _from(pattern: str, folder: Path) -> str:
    """A pattern as a recipe in `folder` names it."""
    return pattern if os.path.isabs(pattern) else os.path.relpath(pattern, folder)
