"""A house per test, torn down with all that still lives in it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from living import House, make_house


@pytest.fixture
def houses(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Builds houses; afterwards nobody lives in them and the disk has its space back."""
    built: list[House] = []

    def build(name: str = "house", *, rows: int = 1_000) -> House:
        built.append(make_house(tmp_path / name, rows=rows))
        return built[-1]

    yield build
    for house in built:
        house.kill_all()
        for checkpoints in house.dir.glob("runs/*/checkpoints"):
            shutil.rmtree(checkpoints, ignore_errors=True)


@pytest.fixture
def house(houses: Callable[..., House]) -> House:
    return houses()
