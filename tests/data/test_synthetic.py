"""Synthetic data: reproducible blocks, the recipe's shape, and an optimum that nothing beats."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_recipes import recipe, whole
from dlrmx.data.manifest import read_manifest
from dlrmx.data.permute import restore_ids
from dlrmx.data.prepare import prepare
from dlrmx.data.synthetic import SyntheticSource
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Recipe

FEATURES: dict[str, Any] = {
    "user": {},
    "item": {},
    "history": {"table": "item", "pooling": "mean"},
    "tags": {"weights": "tag_weights"},
    "page": {"weights": "page_weights"},
}
ROWS = {"user": 500, "item": 100, "tags": 7, "page": 1}


def synthetic(rows: int, *, seed: int = 0, **data: Any) -> Recipe:
    section = {
        "kind": "synthetic",
        "rows": rows,
        "pooling": {"history": {"mean": 2.5, "max": 7}, "tags": {"mean": 1, "max": 3}},
        "split": {"validation": 0, "test": 0},
        **data,
    }
    return recipe(section, FEATURES, ROWS, dense={"a": {}, "b": {}, "c": {}}, seed=seed)


def test_the_shape_is_the_recipes(tmp_path: Path) -> None:
    folder = prepare(synthetic(70_000), tmp_path)
    batch = whole(folder)
    assert batch.dense.shape == (70_000, 3)
    assert list(batch.bags) == list(FEATURES)
    lengths = {name: bags.lengths for name, bags in batch.bags.items()}
    assert set(lengths["user"]) == set(lengths["item"]) == set(lengths["page"]) == {1}
    assert set(lengths["history"]) == set(range(8))
    assert lengths["history"].mean() == pytest.approx(2.5, abs=0.03)
    assert lengths["tags"].mean() == pytest.approx(1, abs=0.02)
    weights = batch.bags["tags"].weights
    assert weights is not None
    assert 0.5 <= weights.min() < 0.51
    assert 1.49 < weights.max() < 1.5
    assert batch.bags["user"].weights is None
    for name, bags in batch.bags.items():
        assert 0 <= bags.ids.min() <= bags.ids.max() < ROWS[FEATURES[name].get("table", name)]


def test_ids_are_zipf_below_the_permutation(tmp_path: Path) -> None:
    batch = whole(prepare(synthetic(200_000, zipf=1.05), tmp_path))
    counts = np.bincount(restore_ids(batch.bags["user"].ids, 500), minlength=500)
    weights = np.arange(1, 501) ** -1.05
    expected = 200_000 * weights / weights.sum()
    # Chi-square of 499 degrees of freedom: mean 499, standard deviation sqrt(998); five of them.
    assert ((counts - expected) ** 2 / expected).sum() < 499 + 5 * np.sqrt(998)


def test_blocks_are_pure_in_seed_and_number() -> None:
    parts = list(SyntheticSource(synthetic(150_000)).parts())
    longer = list(SyntheticSource(synthetic(200_000)).parts())
    assert [len(part.splits) for part in parts] == [65_536, 65_536, 18_928]
    for part, same in zip(parts[:2], longer[:2], strict=True):
        assert np.array_equal(part.columns.labels, same.columns.labels)
        assert np.array_equal(part.columns.dense, same.columns.dense)
        assert np.array_equal(part.columns.bags[0].ids, same.columns.bags[0].ids)
    assert not np.array_equal(parts[0].columns.labels, parts[1].columns.labels)
    other = next(SyntheticSource(synthetic(150_000, seed=1)).parts())
    assert not np.array_equal(parts[0].columns.dense, other.columns.dense)


def test_the_optimum_is_that_of_the_true_probabilities(tmp_path: Path) -> None:
    # A teacher of nothing but a constant: the best prediction is the label mean, up to its sampling error.
    nothing = synthetic(50_000, teacher={"dense": 0, "ids": 0, "bias": -1})
    facts = read_manifest(prepare(nothing, tmp_path)).splits["train"]
    assert facts.label_mean == pytest.approx(1 / (1 + np.e), abs=5 * np.sqrt(0.2 / 50_000))
    assert facts.optimum_ne == pytest.approx(1, abs=0.01)


def test_the_recorded_entropy_is_that_of_the_labels() -> None:
    source = SyntheticSource(synthetic(400_000, teacher={"dense": 1.0, "ids": 2.0, "bias": 0.0}))
    parts = list(source.parts())
    entropy = np.concatenate([part.entropy for part in parts if part.entropy is not None])
    assert len(entropy) == 400_000
    assert 0 <= entropy.min() <= entropy.max() <= np.log(2) + 1e-12
    # The id and dense parts are near normal, so the logit is N(0, 1 + 4): the mean entropy by numerical integration.
    grid = np.linspace(-12, 12, 20_001)
    density = np.exp(-(grid**2) / 10) / np.sqrt(10 * np.pi)
    p = 1 / (1 + np.exp(-grid))
    expected = ((-p * np.log(p) - (1 - p) * np.log(1 - p)) * density).sum() * (grid[1] - grid[0])
    assert entropy.mean() == pytest.approx(expected, rel=0.05)


def test_a_table_that_knows_each_id_reaches_the_optimum(tmp_path: Path) -> None:
    # One feature, no dense part: the mean label of each id is the best prediction, and its NE the optimum.
    section = {"kind": "synthetic", "rows": 300_000, "split": {"validation": 0, "test": 0}, "teacher": {"dense": 0}}
    folder = prepare(recipe(section, {"user": {}}, {"user": 50}), tmp_path)
    batch, facts = whole(folder), read_manifest(folder).splits["train"]
    ids, labels = batch.bags["user"].ids, batch.labels
    means = np.clip(np.bincount(ids, weights=labels) / np.maximum(np.bincount(ids), 1), 1e-9, 1 - 1e-9)[ids]
    loss = -np.mean(labels * np.log(means) + (1 - labels) * np.log(1 - means))
    mean = labels.mean(dtype=np.float64)
    ne = loss / -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean))
    assert facts.optimum_ne == pytest.approx(ne, rel=0.005)
    assert facts.optimum_ne is not None
    assert facts.optimum_ne < 0.8


def test_a_large_table_is_spread_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlrmx.data.synthetic.MAX_RANKS", 1000)
    section = {"kind": "synthetic", "rows": 10_000, "zipf": 0.5}
    part = next(SyntheticSource(recipe(section, {"user": {}}, {"user": 2**39})).parts())
    ids = part.columns.one_hot[:, 0]
    assert ids.dtype == np.int64
    assert 950 < len(np.unique(ids)) <= 1000
    counts = np.bincount(np.unique(ids) // 2**37, minlength=4)
    assert counts.min() > 180  # 250 expected, five standard deviations are 68


def test_what_synthetic_data_cannot_give() -> None:
    wrong: dict[str, Any] = {
        "pooling": {"histroy": {"mean": 2, "max": 3}, "tags": {"mean": 4, "max": 3}},
        "split": {"on": "user"},
    }
    with pytest.raises(InputError) as caught:
        SyntheticSource(synthetic(10, **wrong))
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["data.pooling.histroy", "data.pooling.tags", "data.split.on"]
