"""The stable 64-bit hashes of integers (`mix64`) and of texts ("text64-v1"), vectorised.

Ids and splits depend on them: changing one is a new, differently named algorithm. Unsigned 64-bit arithmetic, modulo
2**64 throughout:

    mix64(x):    x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27; x *= 0x94D049BB133111EB; x ^= x >> 31
    text64-v1:   h = mix64(len + 0x9E3779B97F4A7C15); for each 8 bytes w (little-endian, zero-padded): h = mix64(h ^ w)
                 + 0x9E3779B97F4A7C15

mix64 is the finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

TEXT_HASH = "text64-v1"
GOLDEN = 0x9E3779B97F4A7C15
MASK64 = 2**64 - 1
# Texts of so many bytes, a multiple of 8, are hashed one by one from there on where they are few.
LONG = 1024

UInt64s = NDArray[np.uint64]


def mix64(values: UInt64s) -> UInt64s:
    """Hash of each value; a bijection of the 64-bit integers. The input is left as it is."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def mix_key(*parts: int) -> int:
    """One 64-bit key from several integers; the order counts."""
    key = 0
    for part in parts:
        key = int(mix64(np.array([(key + GOLDEN + part) & MASK64], dtype=np.uint64))[0])
    return key


def key_of_text(text: str) -> int:
    """text64-v1 of one text: a key for the streams that belong to a name."""
    raw = text.encode()
    return int(hash_bytes(np.frombuffer(raw, dtype=np.uint8), np.array([0, len(raw)], dtype=np.int64))[0])


def hash_texts(texts: Any) -> UInt64s:
    """text64-v1 of each text of a pyarrow string array of n, as (n,) uint64. A null hashes as the empty text."""
    import pyarrow as pa

    array = texts.cast(pa.large_string())
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(0, dtype=np.uint64)
    starts = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return hash_bytes(np.frombuffer(data or b"", dtype=np.uint8), starts)


def hash_bytes(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> UInt64s:
    """text64-v1 of the n byte strings data[offsets[i] : offsets[i + 1]], as (n,) uint64."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    # Every unaligned 8-byte window of the bytes, zero-padded at the end so that each start has one.
    padded = np.concatenate([data[: offsets[-1]], np.zeros(8, dtype=np.uint8)])
    windows = np.ndarray(len(padded) - 7, dtype="<u8", buffer=padded, strides=(1,))
    hashes = mix64(lengths.astype(np.uint64) + np.uint64(GOLDEN))
    active = np.flatnonzero(lengths > 0)
    position = 0
    while len(active):
        words = windows[starts[active] + position]
        left = lengths[active] - position
        words &= _low_bytes(left)
        hashes[active] = mix64(hashes[active] ^ words) + np.uint64(GOLDEN)
        active = active[left > 8]
        position += 8
        if position >= LONG and len(active) < 64:
            break
    for text in active:  # few long ones: word by word is faster than array by array
        words = windows[starts[text] + position : starts[text] + lengths[text] : 8].copy()
        words[-1:] &= _low_bytes((lengths[text : text + 1] - position - 1) % 8 + 1)
        hashes[text] = _chain(int(hashes[text]), words.tolist())
    return hashes


def _chain(state: int, words: list[int]) -> int:
    """text64-v1's loop, from a state on."""
    for word in words:
        state ^= word
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK64
        state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK64
        state = (state ^ state >> 31) + GOLDEN & MASK64
    return state


def _low_bytes(count: NDArray[np.int64]) -> UInt64s:
    """A mask of the lowest `count` bytes (1 to 8, more is 8) of a word."""
    return np.uint64(MASK64) >> (8 * (8 - np.minimum(count, 8))).astype(np.uint64)
