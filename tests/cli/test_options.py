"""The option list is pinned, and docs/cli.md says no more and no less. A new feature is a recipe field, no option."""

import re
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from dlrmx_cli.main import app

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
SETTINGS = frozenset({"-s", "--set", "--cluster", "--nodes"})
JOB = SETTINGS | {"-d", "--detach", "-n", "--dry-run", "--json"}

OPTIONS = {
    "train": JOB | {"--name"},
    "resume": JOB | {"--from"},
    "evaluate": {"--split", "--data", "--predict", "--json"},
    "init": {"-o", "--out"},
    "check": SETTINGS | {"--data", "--json"},
    "plan": SETTINGS | {"--out", "--compare", "--json"},
    "data prepare": SETTINGS - {"--nodes"},
    "data show": SETTINGS - {"--nodes"} | {"--json", "--feature"},
    "runs": {"--cluster", "--all", "--json"},
    "status": {"--json"},
    "watch": set(),
    "logs": {"-f", "--follow"},
    "report": {"--json"},
    "cancel": set(),
    "recipes list": {"--json"},
    "recipes show": SETTINGS | {"--resolved", "--json"},
    "recipes copy": set(),
    "recipes schema": set(),
    "checkpoints list": {"--json"},
    "checkpoints show": {"--json"},
    "checkpoints verify": {"--json"},
    "checkpoints prune": {"--keep", "--json"},
    "clusters list": {"--json"},
    "clusters show": {"--json"},
    "clusters measure": {"--json"},
    "doctor": {"--cluster", "--json"},
}


def verbs(group: TyperGroup, prefix: str = "") -> dict[str, tuple[set[str], str]]:
    """Verb -> (its options, its arguments as usage shows them)."""
    found: dict[str, tuple[set[str], str]] = {}
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            found |= verbs(command, f"{prefix}{name} ")
            continue
        options = {word for param in command.params if param.param_type_name == "option" for word in param.opts}
        arguments = [param.metavar or "" for param in command.params if param.param_type_name == "argument"]
        found[prefix + name] = (options - {"-h", "--help"}, " ".join(arguments))
    return found


@pytest.fixture(scope="module")
def app_verbs() -> dict[str, tuple[set[str], str]]:
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    return verbs(command)


def test_the_options_are_these_and_no_others(app_verbs: dict[str, tuple[set[str], str]]) -> None:
    assert {verb: options for verb, (options, _) in app_verbs.items()} == OPTIONS


def test_the_docs_list_every_verb_with_its_arguments_and_options(app_verbs: dict[str, tuple[set[str], str]]) -> None:
    sections = re.split(r"^### dlrmx ", DOCS.read_text(), flags=re.MULTILINE)[1:]
    documented = {}
    for section in sections:
        heading, _, body = section.partition("\n")
        verb = next(name for name in sorted(OPTIONS, key=len, reverse=True) if f"{heading} ".startswith(f"{name} "))
        cells = re.findall(r"^\| (`-.*?) \|", body.partition("\n## ")[0], flags=re.MULTILINE)
        words = {word for cell in cells for word in re.findall(r"`(-[\w-]+)`", cell)}
        documented[verb] = (words, heading.removeprefix(verb).strip())
    assert documented == app_verbs


def test_every_verb_says_what_it_does(app_verbs: dict[str, tuple[set[str], str]]) -> None:
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    for name, verb in command.commands.items():
        assert verb.help, name
        assert len(verb.help.partition("\n")[0]) < 80, name
