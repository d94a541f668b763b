"""The teacher's parts have the standard deviations that the recipe asks for."""

import numpy as np
import pytest

from dlrmx.data.teacher import DenseTeacher, IdEffects, bag_scale
from dlrmx.data.zipf import Zipf
from dlrmx.recipe.schema import Pooling, Teacher


@pytest.mark.parametrize("num_dense", [1, 2, 13])
def test_the_dense_part_has_its_standard_deviation(num_dense: int) -> None:
    dense = np.random.default_rng(0).standard_normal((400_000, num_dense)).astype(np.float32)
    logits = DenseTeacher(num_dense, Teacher(dense=0.7), seed=3).logits(dense)
    assert logits.std() == pytest.approx(0.7, rel=0.01)
    assert logits.mean() == pytest.approx(0, abs=0.005)


def test_without_dense_columns_the_dense_part_is_zero() -> None:
    assert DenseTeacher(0, Teacher(), seed=3).logits(np.zeros((5, 0), dtype=np.float32)).tolist() == [0.0] * 5


def test_effects_are_standard_under_the_ids_distribution() -> None:
    distribution = Zipf(300, 1.1)
    effects = IdEffects("item", 0, distribution)(np.arange(300))
    assert np.average(effects, weights=distribution.probabilities) == pytest.approx(0, abs=1e-9)
    assert np.average(effects**2, weights=distribution.probabilities) == pytest.approx(1)


def test_effects_differ_by_table_and_seed() -> None:
    distribution = Zipf(300, 1.1)
    first = IdEffects("item", 0, distribution)(np.arange(300))
    for other in (IdEffects("user", 0, distribution), IdEffects("item", 1, distribution)):
        assert abs(np.corrcoef(first, other(np.arange(300)))[0, 1]) < 0.3


def test_a_table_of_one_row_has_no_effect() -> None:
    effects = IdEffects("item", 0, Zipf(1, 1.0))
    assert effects.constant
    assert effects(np.zeros(3, dtype=np.int64)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize(("mean", "most"), [(1, 1), (3, 3), (2.5, 20)])
def test_pooled_effects_have_variance_one(kind: str, mean: float, most: int) -> None:
    generator = np.random.default_rng(1)
    lengths = generator.binomial(most, mean / most, 50_000)
    bags = [generator.standard_normal(length) for length in lengths]
    pooled = np.array([bag.sum() if kind == "sum" else bag.mean() if len(bag) else 0.0 for bag in bags])
    scaled = pooled * bag_scale(Pooling(mean=mean, max=most), kind, weight_square=1.0)
    assert scaled.std() == pytest.approx(1, rel=0.02)
