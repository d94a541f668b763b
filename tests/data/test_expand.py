"""Multi-hot features made of one-hot ones: by the written rule, evenly, from file to batch."""

from pathlib import Path

import numpy as np

from criteo_files import criteo, random_rows, write
from data_recipes import whole
from dlrmx.data.expand import expanded
from dlrmx.data.manifest import read_manifest
from dlrmx.data.prepare import prepare
from hash_reference import GOLDEN, MASK, mix


def test_the_rule() -> None:
    ids = [0, 1, 7, 999_999]
    others = [[i, *(mix((i + k * GOLDEN) & MASK) % 10**6 for k in range(1, 5))] for i in ids]
    assert expanded(np.array(ids), 5, 10**6).tolist() == sum(others, [])
    assert expanded(np.array(ids), 1, 10**6).tolist() == ids
    assert expanded(np.zeros(0, dtype=np.int64), 3, 9).tolist() == []


def test_the_others_are_even_over_the_table() -> None:
    drawn = expanded(np.arange(1000), 101, 50).reshape(1000, 101)[:, 1:]
    counts = np.bincount(drawn.ravel(), minlength=50)
    # 2,000 expected in each row, with a standard deviation of 44.
    assert abs(counts - 2000).max() < 5 * 44


def test_from_file_to_batch(tmp_path: Path) -> None:
    path = write(tmp_path / "a", *random_rows(50))
    features = {"C1": {}, "C2": {"expand": 4}}
    plain = whole(prepare(criteo([path], features={"C1": {}, "C2": {}}), tmp_path))
    folder = prepare(criteo([path], features=features), tmp_path)
    batch, facts = whole(folder), read_manifest(folder).features["C2"]
    assert batch.bags["C2"].lengths.tolist() == [4] * 50
    assert batch.bags["C2"].ids.tolist() == expanded(plain.bags["C2"].ids, 4, 1000).tolist()
    assert (batch.bags["C1"].ids == plain.bags["C1"].ids).all()
    assert (facts.mean_pooling, facts.max_pooling) == (4, 4)
