"""Who may import whom: the arrows of docs/architecture.md, read from the source and not from a running program."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LEAVES = {"", "errors", "units"}  # "" is `dlrmx` itself: the version
RECIPE = LEAVES | {"recipe"}
WORKER = RECIPE | {"plan", "data", "runs", "model"}
# Area -> the areas it may import. `checkpoint` is the half without torch, `checkpoint.tensors` is CHECKPOINT_TENSORS.
ARROWS = {
    "": set(),
    "errors": set(),
    "units": set(),
    "recipe": LEAVES,
    "plan": RECIPE,
    "data": RECIPE | {"runs.layout"},
    "runs": RECIPE,
    "checkpoint": RECIPE | {"plan", "data", "runs"},
    "launch": RECIPE | {"plan", "data", "runs", "checkpoint"},
    "cli": RECIPE | {"plan", "data", "runs", "checkpoint", "launch"},
    "model": {"recipe.schema"},
    "parallel": WORKER,
    "checkpoint.tensors": WORKER | {"checkpoint"},
    "train": WORKER | {"checkpoint", "checkpoint.tensors", "parallel"},
}
CHECKPOINT_TENSORS = {"write", "read", "reshard"}
# Package -> the areas that may import it, at the top or inside a function.
OTHERS = {
    "torch": {"model", "parallel", "train", "checkpoint.tensors"},
    "fbgemm_gpu": {"parallel", "train"},
    "torchx": {"launch"},
    "pyarrow": {"data"},
    "typer": {"cli"},
    "rich": {"cli"},
}


def area(module: str) -> str:
    """`dlrmx.plan.shards` -> `plan`; `dlrmx_cli.main` -> `cli`; `dlrmx` -> the empty name."""
    package, *parts = module.split(".")
    if package == "dlrmx_cli":
        return "cli"
    if parts[:1] == ["checkpoint"] and set(parts[1:2]) & CHECKPOINT_TENSORS:
        return "checkpoint.tensors"
    return "" if parts[:1] in ([], ["__version__"]) else parts[0]


def imports(source: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import in `source`, wherever it stands; relative ones are resolved in `package`.

    `from a import b` gives `a.b`: b may be a module.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def offences(source: str, module: str, package: str) -> list[str]:
    """Each import in `source` that goes against an arrow, as `line: name`."""
    here = area(module)
    return [f"{line}: {name}" for line, name in imports(source, package) if not allowed(here, name)]


def allowed(here: str, name: str) -> bool:
    top, *parts = name.split(".")
    if top not in ("dlrmx", "dlrmx_cli"):
        return here in OTHERS.get(top, {here})
    there = area(name)
    return there == here or there in ARROWS[here] or ".".join(parts[:2]) in ARROWS[here]


def modules() -> list[tuple[Path, str, str]]:
    """(file, module, package that its relative imports start from) of the library and the command line."""
    found = []
    for folder, top in (("dlrmx", "dlrmx"), ("cli", "dlrmx_cli")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = [top, *path.relative_to(ROOT / folder).with_suffix("").parts]
            package = parts[:-1]
            found.append((path, ".".join(package if parts[-1] == "__init__" else parts), ".".join(package)))
    return found


def test_every_import_follows_the_arrows() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{offence}"
        for path, module, package in modules()
        for offence in offences(path.read_text(), module, package)
    ]
    assert not wrong, "against the arrows of docs/architecture.md:\n" + "\n".join(wrong)


def test_every_folder_of_the_library_has_arrows() -> None:
    assert {area(module) for _, module, _ in modules()} <= set(ARROWS)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("dlrmx.recipe.load", "from dlrmx.plan.shards import Plan"),
        ("dlrmx.plan.planner", "import torch"),
        ("dlrmx.plan.planner", "from dlrmx_cli.main import main"),
        ("dlrmx.train.loop", "from dlrmx.launch import node"),
        ("dlrmx.train.loop", "from dlrmx import launch"),
        ("dlrmx.parallel.exchange", "import dlrmx.train.loop"),
        ("dlrmx.model.build", "from dlrmx.recipe.load import load_recipe"),
        ("dlrmx.checkpoint.verify", "def later():\n    import torch.nn"),
        ("dlrmx.checkpoint.retain", "from dlrmx.checkpoint.read import open_checkpoint"),
        ("dlrmx.checkpoint.retain", "from . import write"),
        ("dlrmx.runs.state", "import torchx.specs"),
        ("dlrmx_cli.main", "from dlrmx.train import loop"),
        ("dlrmx_cli.main", "from dlrmx.checkpoint import read"),
    ],
)
def test_an_import_against_an_arrow_is_found(module: str, line: str) -> None:
    assert offences(line, module, module.rpartition(".")[0])


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("dlrmx.plan.planner", "from dlrmx.recipe.schema import Recipe"),
        ("dlrmx.model.build", "from dlrmx.recipe.schema import Dlrm"),
        ("dlrmx.train.loop", "from dlrmx.checkpoint.read import open_checkpoint"),
        ("dlrmx.launch.node", "from dlrmx import __version__"),
        ("dlrmx.launch.node", "from dlrmx.checkpoint.retain import newest_good"),
        ("dlrmx_cli.main", "from .live import Live"),
        ("dlrmx_cli.main", "import json"),
    ],
)
def test_an_import_along_an_arrow_passes(module: str, line: str) -> None:
    assert not offences(line, module, module.rpartition(".")[0])
