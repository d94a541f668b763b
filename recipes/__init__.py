"""Runnable experiments, one per file: `shipped` finds them wherever the package is installed."""

from pathlib import Path


def shipped() -> dict[str, Path]:
    """The shipped recipes by name (the file's stem), in order."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.yaml"))}
