"""Two valid recipes and the problems that a change to one of them brings."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlrmx.errors import InputError
from dlrmx.recipe.load import load_recipe

HERE = Path(__file__).parent
Problems = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def example() -> Path:
    """Synthetic data, DLRM with dot interaction, a shared table, a multi-hot feature."""
    return HERE / "example.yaml"


@pytest.fixture
def tabular() -> Path:
    """CSV files, vocabularies by `defaults`, DCNv2, a weighted feature."""
    return HERE / "tabular.yaml"


@pytest.fixture
def problems(example: Path) -> Problems:
    """Load the example (or another recipe) with overrides; (dotted key, message) of each problem, in order."""

    def load(*overrides: str, path: Path = example) -> list[tuple[str, str]]:
        try:
            load_recipe(path, overrides)
        except InputError as error:
            return [(problem.key, f"{problem.what} / {problem.hint}") for problem in error.problems]
        return []

    return load
