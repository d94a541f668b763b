"""The wheel holds what git holds, and a laptop that has only the base dependencies can check, plan and look."""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from packaging.requirements import Requirement

from dlrmx.checkpoint.write import Piece, save
from dlrmx.runs.layout import RunPaths

ROOT = Path(__file__).resolve().parent.parent
INSTALLED_AS = {"dlrmx": "dlrmx", "cli": "dlrmx_cli", "recipes": "dlrmx_recipes"}


def git_files() -> list[str]:
    """What git holds of this checkout, new files that it would add included."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing to compare the wheel with")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [name for name in listed if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves files in its source folder."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in git_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    built = subprocess.run(build, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(out.glob("dlrmx-*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel and its base dependencies: links to the ones installed here."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--no-deps", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    dlrmx = metadata.Distribution.at(next(site.glob("dlrmx-*.dist-info")))
    for distribution in base_dependencies(dlrmx):
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(str(distribution.locate_file(top)))
    return home / "bin"


def base_dependencies(root: metadata.Distribution) -> Iterator[metadata.Distribution]:
    """What pip would install for `root` without extras, `root` apart."""
    seen: set[str] = set()
    todo = [root]
    while todo:
        for text in todo.pop().requires or ():
            needed = Requirement(text)
            wanted = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if wanted and needed.name not in seen:
                seen.add(needed.name)
                todo.append(metadata.distribution(needed.name))
                yield todo[-1]


def run(command: list[str], folder: Path) -> str:
    """The stdout of a command that must succeed, started in `folder` by a user who has nothing else."""
    env = {"PATH": os.defpath, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_holds_what_git_holds(wheel: Path) -> None:
    tops = {name: name.split("/", 1) for name in git_files() if "/" in name}
    expected = {f"{INSTALLED_AS[top]}/{rest}" for top, rest in tops.values() if top in INSTALLED_AS}
    assert {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name} == expected


def test_the_bare_environment_has_no_torch(bare: Path, tmp_path: Path) -> None:
    find = "from importlib.util import find_spec; print([name for name in ('torch', 'pyarrow') if find_spec(name)])"
    assert run([str(bare / "python"), "-c", find], tmp_path) == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["recipes", "list"], "quickstart"),
        (["check", "quickstart"], "quickstart"),
        (["plan", "quickstart"], "table_wise"),
        (["train", "quickstart", "--dry-run"], "dlrmx.launch.node"),
    ],
)
def test_a_laptop_without_torch_can(bare: Path, tmp_path: Path, arguments: list[str], shown: str) -> None:
    assert shown in run([str(bare / "dlrmx"), *arguments], tmp_path)


def test_a_laptop_without_torch_can_show_a_checkpoint(bare: Path, tmp_path: Path) -> None:
    run_paths = RunPaths(tmp_path / "ctr-1")
    run_paths.attempt(1).dir.mkdir(parents=True)
    piece = Piece("table/item/weight", (4, 8), (0, 4), None, torch.zeros(4, 8))
    saved = save(run_paths, step=10, attempt=1, pieces=[piece], state={}, group=None, on_phase=lambda _: None)
    assert "table/item/weight" in run([str(bare / "dlrmx"), "checkpoints", "show", str(saved.path)], tmp_path)
