"""The hashes, held against a plain-Python implementation of their description and against pinned values."""

import time

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from dlrmx.data.hashing import hash_texts, key_of_text, mix64, mix_key
from hash_reference import GOLDEN, MASK, key, mix, text_hash


def test_mix64_is_splitmix64s_finalizer() -> None:
    # The published first output of SplitMix64 with seed 0 is mix(0 + GOLDEN).
    assert int(mix64(np.array([GOLDEN], dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF
    values = np.array([0, 1, 2**63, MASK], dtype=np.uint64)
    assert mix64(values).tolist() == [mix(int(value)) for value in values]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0xE220A8397B1DCDAF),
        ("a", 0xDC87E811157DD705),
        ("68fd1e64", 0x2B219F374E30AE54),
        ("Zürich, 1 km²", 0x69FE486E8733BE0),
    ],
)
def test_the_hash_of_a_text_never_changes(text: str, expected: int) -> None:
    assert hash_texts(pa.array([text])).tolist() == [expected]


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=20), st.integers(0, 3))
def test_texts_hash_as_described(texts: list[str | None], skip: int) -> None:
    array = pa.array(texts, pa.string())[skip:]
    assert hash_texts(array).tolist() == [text_hash(text or "") for text in texts[skip:]]


def test_long_texts_hash_as_described() -> None:
    texts = ["ab" * 511, "x" * 1024, "y" * 1025, "é" * 600, "z" * 1031, "w" * 1032, "v" * 1033, "", "u" * 5000]
    assert hash_texts(pa.array(texts)).tolist() == [text_hash(text) for text in texts]


def test_a_text_of_megabytes_hashes_in_a_moment() -> None:
    began = time.process_time()
    hash_texts(pa.array(["x" * 4_000_000, "y"]))
    assert time.process_time() - began < 5  # array by array it takes 15


def test_zero_bytes_count() -> None:
    assert len(set(hash_texts(pa.array(["", "\0", "\0\0", "\0" * 8, "\0" * 9])).tolist())) == 5


def test_keys_depend_on_each_part_and_their_order() -> None:
    assert len({mix_key(1, 2), mix_key(2, 1), mix_key(1), mix_key(1, 2, 0), mix_key(0, 1, 2)}) == 5
    assert mix_key(7, 2**40) == key(7, 2**40)
    assert key_of_text("strata-v1") == text_hash("strata-v1")
