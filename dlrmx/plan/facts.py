"""What the planner reads of a prepared dataset's manifest, and what it takes instead where there is none."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from dlrmx.recipe.schema import Recipe, Synthetic


class FeatureFacts(Protocol):
    """One feature: ids per sample, and skew as [share of the table's rows, share of the look-ups], ascending."""

    @property
    def mean_pooling(self) -> float: ...
    @property
    def hot(self) -> Sequence[Sequence[float]]: ...


class Facts(Protocol):
    """All features (dlrmx.data.manifest.Manifest has them)."""

    @property
    def features(self) -> Mapping[str, FeatureFacts]: ...


def poolings(recipe: Recipe, facts: Facts | None) -> dict[str, list[float]]:
    """Per table the mean ids per sample of each of its features: from the facts, else from the recipe, else 1."""
    planted = recipe.data.pooling if isinstance(recipe.data, Synthetic) else {}
    found: dict[str, list[float]] = {name: [] for name in recipe.tables}
    for name, feature in recipe.features.items():
        said = planted[name].mean if name in planted else float(feature.expand)
        found[feature.table].append(facts.features[name].mean_pooling if facts else said)
    return found
