"""The map in dlrmx/__init__.py names every module, each with its one job."""

import ast
import re
from pathlib import Path

import dlrmx

ROOT = Path(__file__).resolve().parent.parent


def mapped() -> dict[str, str]:
    """File -> job, as the map says."""
    assert dlrmx.__doc__
    return dict(re.findall(r"^    (\S+\.py) +(\S.*)$", dlrmx.__doc__, re.MULTILINE))


def files() -> set[str]:
    found = {path.relative_to(ROOT / "dlrmx") for path in (ROOT / "dlrmx").rglob("*.py")}
    found |= {path.relative_to(ROOT) for path in (ROOT / "cli").rglob("*.py")}
    return {path.as_posix() for path in found if path.name != "__init__.py"}


def test_the_map_names_every_module_and_no_other() -> None:
    assert set(mapped()) == files()


def test_each_module_opens_with_its_job() -> None:
    sources = [*(ROOT / "dlrmx").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    silent = [str(path.relative_to(ROOT)) for path in sources if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent


def test_the_version_is_that_of_the_package() -> None:
    assert f"\nversion = {dlrmx.__version__}\n" in (ROOT / "setup.cfg").read_text()
