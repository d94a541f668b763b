"""Small files in Criteo's layout, and recipes for them."""

import random
from pathlib import Path
from typing import Any

from data_recipes import recipe
from dlrmx.data import criteo as module
from dlrmx.data.prepare import prepare
from dlrmx.recipe.schema import Recipe

INTEGERS = [f"I{n}" for n in range(1, 14)]
CATEGORIES = [f"C{n}" for n in range(1, 27)]


def fields(label: str = "1", integers: dict[str, str] | None = None, **categories: str) -> list[str]:
    """A row's 40 fields: integer In is n, category Cn is n in 8 hexadecimal digits, unless said otherwise."""
    integers = integers or {}
    return [
        label,
        *(integers.get(name, str(number)) for number, name in enumerate(INTEGERS, start=1)),
        *(categories.get(name, f"{number:08x}") for number, name in enumerate(CATEGORIES, start=1)),
    ]


def row(label: str = "1", integers: dict[str, str] | None = None, **categories: str) -> bytes:
    return "\t".join(fields(label, integers, **categories)).encode()


def random_rows(count: int, seed: int = 0, values: int = 50) -> list[bytes]:
    """Rows with blanks, of so many different categories to a column."""
    source = random.Random(seed)

    def blank(text: str) -> str:
        return "" if source.random() < 0.1 else text

    return [
        row(
            str(int(source.random() < 0.3)),
            {name: blank(str(source.randrange(-2, 10_000))) for name in INTEGERS},
            **{name: blank(f"{source.randrange(values) * 0x9E3779B1 % 2**32:08x}") for name in CATEGORIES},
        )
        for _ in range(count)
    ]


def write(path: Path, *rows: bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"".join(one + end for one in rows))
    return path


def criteo(
    files: list[Path], *, features: dict[str, Any] | None = None, rows: int = 1000, bad_ids: str = "fail", **data: Any
) -> Recipe:
    """A recipe over all 40 columns (or the given features), dense columns by log1p; all rows train."""
    features = features or {name: {} for name in CATEGORIES}
    section = {"kind": "criteo", "files": [str(path) for path in files], "split": {"validation": 0, "test": 0}, **data}
    tables = {feature.get("table", name) for name, feature in features.items()}
    dense = {name: {"transform": "log1p"} for name in INTEGERS}
    made = recipe(section, features, dict.fromkeys(sorted(tables), rows), dense=dense)
    settings = {name: {"rows": rows, "dim": 4, "bad_ids": bad_ids} for name in made.tables}
    return Recipe.model_validate({**made.model_dump(), "tables": settings})


def prepare_in_pieces(recipe_json: str, root: Path, piece_bytes: int) -> None:
    """What a process of its own does."""
    module.PIECE_BYTES = piece_bytes
    prepare(Recipe.model_validate_json(recipe_json), root)
