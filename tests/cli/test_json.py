"""docs/cli.md names every key of what --json prints."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dlrmx.runs.records import append_record
from scripted import EVALUATION, STEP, Dlrmx, MakeRun
from small_checkpoint import save_checkpoint

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def documented(verb: str) -> set[str]:
    section = re.split(r"^### ", DOCS.read_text().partition(f"### dlrmx {verb}")[2], flags=re.MULTILINE)[0]
    (row,) = re.findall(r"^\| `--json` \| (.*) \|$", section, flags=re.MULTILINE)
    return set(re.findall(r"`(\w+)`", row))


def keys_within(value: Any) -> set[str]:
    """Keys of the objects that a value holds, one level down."""
    entries = value if isinstance(value, list) else value.values() if isinstance(value, dict) else []
    return {key for entry in entries if isinstance(entry, dict) for key in entry}


@pytest.mark.parametrize(
    "words",
    [
        ("check", "clicks.yaml"),
        ("plan", "clicks.yaml"),
        ("data show", "clicks.yaml"),
        ("status",),
        ("report",),
        ("recipes list",),
        ("recipes show", "clicks.yaml"),
        ("checkpoints list",),
        ("checkpoints show", "clicks-1"),
        ("checkpoints verify", "clicks-1"),
        ("checkpoints prune",),
        ("clusters list",),
        ("clusters show",),
    ],
    ids=lambda words: words[0],
)
def test_the_docs_name_the_keys(words: tuple[str, ...], dlrmx: Dlrmx, make_run: MakeRun, recipe_file: Path) -> None:
    run = make_run()
    append_record(run.attempt(1), **EVALUATION)
    append_record(run.attempt(1), **STEP)
    save_checkpoint(run, 10)
    assert dlrmx("data", "prepare", recipe_file).exit_code == 0
    verb, *arguments = words
    done = dlrmx(*verb.split(), *arguments, "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert next(iter(printed)) == "version"
    top = set(printed) - {"version"}
    assert top <= documented(verb)
    assert documented(verb) <= top.union(*map(keys_within, printed.values()))
