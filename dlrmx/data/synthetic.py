"""Synthetic data: Zipf ids, standard normal dense columns, labels drawn from a planted teacher's probabilities.

Rows come in blocks of 65,536, each a pure function of (recipe, seed, block). A table of more than 2**24 rows sees so
many different ids, spread over all of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.columns import BagColumn, Columns, FeatureLayout, layout_of
from dlrmx.data.hashing import key_of_text, mix_key
from dlrmx.data.permute import permute_ids
from dlrmx.data.splits import assign, by_place, fraction_cuts
from dlrmx.data.teacher import DenseTeacher, IdEffects, bag_scale
from dlrmx.data.writer import Losses, Part
from dlrmx.data.zipf import Zipf
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.schema import Pooling, Recipe, Synthetic

BLOCK = 65_536
# A table sees at most so many different ids: their distribution is held in memory.
MAX_RANKS = 2**24
# Weights are uniform in [0.5, 1.5): their mean square is 1 + 1 / 12.
WEIGHT_SQUARE = 13 / 12

Float64s = NDArray[np.float64]


@dataclass(frozen=True)
class _Ids:
    """One feature's ids in a block: a row of ids, or bags; and what they add to the logits (n,), with variance 1."""

    one_hot: NDArray[np.integer] | None
    bags: BagColumn | None
    effects: Float64s


class _FeatureSource:
    """Draws the ids of one feature."""

    def __init__(
        self, feature: FeatureLayout, pooling: Pooling | None, kind: str, distribution: Zipf, seed: int
    ) -> None:
        self._feature = feature
        self._pooling = pooling or Pooling(mean=1, max=1)
        self._mean_pooled = kind == "mean"
        self._distribution = distribution
        ids = permute_ids(np.arange(distribution.count, dtype=np.int64), feature.rows)
        self._id_of_rank: NDArray[np.integer] = ids.astype(np.int32) if feature.rows <= 2**31 else ids
        self._effects = IdEffects(feature.table, seed, self._distribution)
        square = WEIGHT_SQUARE if feature.weighted else 1.0
        self._scale = bag_scale(self._pooling, kind, weight_square=square)
        self.constant = self._effects.constant

    def draw(self, generator: np.random.Generator, rows: int) -> _Ids:
        """Ids and effects of the next rows."""
        if self._feature.one_hot:
            ranks = self._distribution.ranks(generator.random(rows))
            return _Ids(self._id_of_rank[ranks], None, self._effects(ranks))
        lengths = generator.binomial(self._pooling.max, self._pooling.mean / self._pooling.max, rows)
        total = int(lengths.sum())
        ranks = self._distribution.ranks(generator.random(total))
        weights = generator.random(total, dtype=np.float32) + np.float32(0.5) if self._feature.weighted else None
        effects = self._effects(ranks) if weights is None else self._effects(ranks) * weights
        summed = np.bincount(np.repeat(np.arange(rows), lengths), weights=effects, minlength=rows)
        pooled = np.asarray(summed / np.maximum(lengths, 1) if self._mean_pooled else summed, dtype=np.float64)
        return _Ids(None, BagColumn.from_lengths(lengths, self._id_of_rank[ranks], weights), pooled * self._scale)


class SyntheticSource:
    """The rows of a recipe whose data section is `synthetic`."""

    def __init__(self, recipe: Recipe) -> None:
        assert isinstance(recipe.data, Synthetic)
        self._data, self._seed = recipe.data, recipe.seed
        _check(recipe, recipe.data)
        pooling = recipe.data.pooling
        one_hot = {name for name, feature in recipe.features.items() if name not in pooling and feature.weights is None}
        self.layout = layout_of(recipe, one_hot)
        self.rows: int | None = recipe.data.rows
        self.losses = {name: Losses() for name in recipe.features}
        counts = {feature.table: min(feature.rows, MAX_RANKS) for feature in self.layout.features}
        # Tables of one size share one distribution.
        sizes = {count: Zipf(count, recipe.data.zipf) for count in set(counts.values())}
        self._features = [
            _FeatureSource(
                feature,
                pooling.get(feature.name),
                recipe.features[feature.name].pooling,
                sizes[counts[feature.table]],
                recipe.seed,
            )
            for feature in self.layout.features
        ]
        self._dense = DenseTeacher(len(recipe.dense), recipe.data.teacher, recipe.seed)
        varying = sum(not feature.constant for feature in self._features)
        self._id_std = recipe.data.teacher.ids / np.sqrt(max(varying, 1))

    def parts(self) -> Iterator[Part]:
        """All rows, block by block."""
        for block in range(-(-self._data.rows // BLOCK)):
            yield self._part(block)

    def _part(self, block: int) -> Part:
        first = block * BLOCK
        rows = min(BLOCK, self._data.rows - first)
        stream = mix_key(key_of_text("synthetic-v1"), self._seed, block)
        generator = np.random.Generator(np.random.SFC64(stream))
        dense = generator.standard_normal((rows, len(self.layout.dense)), dtype=np.float32)
        logits = self._data.teacher.bias + self._dense.logits(dense)
        one_hot, bags = [], []
        for feature in self._features:
            ids = feature.draw(generator, rows)
            logits += self._id_std * ids.effects
            if ids.one_hot is not None:
                one_hot.append(ids.one_hot)
            if ids.bags is not None:
                bags.append(ids.bags)
        labels, entropy = _label(generator, logits)
        together = np.stack(one_hot, axis=1) if one_hot else np.zeros((rows, 0), dtype=np.int32)
        if self._data.split.by == "fraction":
            splits = by_place(fraction_cuts(self._data.rows, self._data.split), first, rows)
        else:
            splits = assign(np.arange(first, first + rows, dtype=np.uint64), self._data.split)
        return Part(Columns(labels, dense, together, tuple(bags)), splits, entropy)


def _label(generator: np.random.Generator, logits: Float64s) -> tuple[NDArray[np.float32], Float64s]:
    """A label drawn for each row, and the entropy of its probability p: -p ln p - (1 - p) ln(1 - p)."""
    probabilities = 1 / (1 + np.exp(-logits))
    labels = (generator.random(len(logits)) < probabilities).astype(np.float32)
    # ln(1 + e^-|z|) + |z| (1 - max(p, 1 - p)): exact also where p is next to 0 or 1.
    size = np.abs(logits)
    small = np.exp(-size)
    return labels, np.log1p(small) + size * small / (1 + small)


def _check(recipe: Recipe, data: Synthetic) -> None:
    """What a recipe may ask for and synthetic data cannot give."""
    problems = [
        Problem("no such feature", key=f"data.pooling.{name}", hint=f"The features are: {', '.join(recipe.features)}.")
        for name in data.pooling
        if name not in recipe.features
    ]
    problems += [
        Problem(f"a mean of {pooling.mean} ids is above the maximum, {pooling.max}", key=f"data.pooling.{name}")
        for name, pooling in data.pooling.items()
        if pooling.mean > pooling.max
    ]
    if data.split.on is not None:
        hint = "Leave it out: rows are split by their number."
        problems.append(Problem("synthetic data has no columns to split by", key="data.split.on", hint=hint))
    if problems:
        raise InputError(problems)
