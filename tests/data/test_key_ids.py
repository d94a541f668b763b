"""Keys are found in vocabularies however they are spread, and counted however they come in."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlrmx.data import key_ids
from dlrmx.data.key_ids import KeyCounter, KeyVocabulary
from dlrmx.data.permute import permute_ids

RANDOM = np.random.default_rng(3)
VOCABULARIES = {
    "empty": np.zeros(0, dtype=np.uint64),
    "one": np.array([7], dtype=np.uint64),
    "even": RANDOM.integers(0, 2**32, 3000, np.uint64),
    "wide": RANDOM.integers(0, 2**64, 3000, np.uint64),
    "dense": RANDOM.permutation(1000).astype(np.uint64),
    "one far away": np.array([*range(1000), 2**64 - 1], dtype=np.uint64),
    "skewed": np.uint64(1) << np.arange(64, dtype=np.uint64),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_each_key_has_the_id_of_its_place(name: str, tmp_path: Path) -> None:
    keys, rows = np.array(list(dict.fromkeys(VOCABULARIES[name].tolist())), dtype=np.uint64), 5000
    KeyVocabulary.save(tmp_path / "0.npy", keys)
    asked = np.concatenate([keys, keys + np.uint64(1), keys - np.uint64(1), np.array([0, 2**64 - 1], dtype=np.uint64)])
    found = KeyVocabulary.load(tmp_path / "0.npy", rows).ids(asked)
    plain = {key: place + 2 for place, key in enumerate(keys.tolist())}
    expected = np.array([plain.get(key, 1) for key in asked.tolist()])
    assert found.ids.tolist() == permute_ids(expected, rows).tolist()
    assert found.unseen.tolist() == (expected == 1).tolist()
    assert not found.bad.any()


@pytest.mark.parametrize("most", [2**32, 2**64])
def test_keys_are_counted_whenever_they_are_summed_up(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ids, "SORTED_KEYS", 100)
    monkeypatch.setattr(key_ids, "COMPACT", 150)
    values = RANDOM.integers(0, most, 200, np.uint64)
    drawn: list[NDArray[np.uint64]] = [RANDOM.choice(values, size) for size in (0, 1, 70, 70, 300, 5)]
    counter = KeyCounter()
    for some in drawn:
        counter.add(some)
    counts = Counter(np.concatenate(drawn).tolist())
    keys, left_out = counter.vocabulary(2, 52)
    frequent = sorted((key for key in counts if counts[key] >= 2), key=lambda key: (-counts[key], key))
    assert keys.tolist() == frequent[:50]
    assert left_out == len(frequent) - 50 > 0


def test_a_counter_of_nothing() -> None:
    keys, left_out = KeyCounter().vocabulary(1, 10)
    assert (len(keys), left_out) == (0, 0)
