"""Ids by hash and by vocabulary, before and after the table's permutation."""

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from dlrmx.data import vocabulary
from dlrmx.data.permute import restore_ids
from dlrmx.data.vocabulary import Counter, HashLookup, VocabularyLookup, missing_id
from hash_reference import image, text_hash


def plain(ids: NDArray[np.int64], rows: int) -> list[int]:
    return [int(number) for number in restore_ids(ids, rows)]


def test_ids_by_hash_are_as_described() -> None:
    texts = ["", "a", "68fd1e64", "Zürich"]
    ids, unseen, _ = HashLookup(1000).ids(pa.array(texts))
    assert ids.tolist() == [image(1 + text_hash(text) % 999, 1000, 0) for text in texts]
    assert not unseen.any()


def test_ids_by_hash_never_change() -> None:
    ids, *_ = HashLookup(1_000_000).ids(pa.array(["a", "68fd1e64"]))
    assert ids.tolist() == [720968, 287302]


@settings(deadline=None)
@given(st.integers(1, 2**40 - 1), st.lists(st.text(max_size=20), min_size=1, max_size=20))
def test_every_id_is_a_row_of_the_table_and_none_by_hash_is_the_missing_one(rows: int, texts: list[str]) -> None:
    ids, *_ = HashLookup(rows).ids(pa.array(texts))
    assert ((ids >= 0) & (ids < rows)).all()
    assert 0 <= missing_id(rows) < rows
    assert rows == 1 or missing_id(rows) not in ids
    looked_up, *_ = VocabularyLookup(pa.array(sorted(set(texts))[: max(rows - 2, 0)], pa.string()), rows).ids(
        pa.array([*texts, "not there"])
    )
    assert ((looked_up >= 0) & (looked_up < rows)).all()


def test_the_vocabulary_is_by_frequency_then_by_text() -> None:
    counter = Counter()
    counter.add(pa.array(["b", "a", "rare"]), np.array([2, 1, 1]))
    counter.add(pa.array(["c", "a", "é"]), np.array([5, 1, 2]))
    values, overflow = counter.vocabulary(min_count=2, rows=100)
    assert values.to_pylist() == ["c", "a", "b", "é"]
    assert overflow == 0
    values, overflow = counter.vocabulary(min_count=1, rows=5)
    assert values.to_pylist() == ["c", "a", "b"]
    assert overflow == 2


def test_counts_are_the_same_however_often_they_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"value {n * n % 97}" for n in range(1000)]
    expected = sorted({text: texts.count(text) for text in texts}.items(), key=lambda item: (-item[1], item[0]))
    monkeypatch.setattr(vocabulary, "COMPACT", 10)
    counter = Counter()
    for first in range(0, 1000, 7):
        part = texts[first : first + 7]
        counter.add(pa.array(part), np.ones(len(part), dtype=np.int64))
    values, _ = counter.vocabulary(min_count=1, rows=10**6)
    assert values.to_pylist() == [text for text, _ in expected]


def test_an_empty_vocabulary() -> None:
    values, overflow = Counter().vocabulary(min_count=1, rows=10)
    assert (values.to_pylist(), overflow) == ([], 0)
    ids, unseen, _ = VocabularyLookup(values, 10).ids(pa.array(["a"]))
    assert (plain(ids, 10), unseen.tolist()) == ([1], [True])


def test_known_values_follow_the_two_reserved_rows() -> None:
    ids, unseen, _ = VocabularyLookup(pa.array(["x", "y", "z"]), 10).ids(pa.array(["z", "new", "x", ""]))
    assert plain(ids, 10) == [4, 1, 2, 1]
    assert unseen.tolist() == [False, True, False, True]
    assert plain(np.array([missing_id(10)]), 10) == [0]


def test_no_texts() -> None:
    none = pa.array([], pa.string())
    assert VocabularyLookup(pa.array(["x"]), 10).ids(none)[0].tolist() == []
    assert HashLookup(10).ids(none)[0].tolist() == []
