"""The hashes of dlrmx.data in plain Python, from their description: what tests hold the vectorised ones to."""

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """mix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def text_hash(text: str) -> int:
    """text64-v1 of a text."""
    return hash_of_bytes(text.encode())


def hash_of_bytes(raw: bytes) -> int:
    """text64-v1."""
    h = mix((len(raw) + GOLDEN) & MASK)
    for i in range(0, len(raw), 8):
        word = int.from_bytes(raw[i : i + 8].ljust(8, b"\0"), "little")
        h = (mix(h ^ word) + GOLDEN) & MASK
    return h


def key(*parts: int) -> int:
    """mix_key."""
    h = 0
    for part in parts:
        h = mix((h + GOLDEN + part) & MASK)
    return h


def image(x: int, size: int, key: int) -> int:
    """feistel-v1 of one value."""
    bits = (size - 1).bit_length()
    low = (bits + 1) // 2
    while True:
        left, right = x >> low, x & ((1 << low) - 1)
        for number in range(6):
            constant = key + (number + 1) * GOLDEN
            if number % 2 == 0:
                left ^= (mix((right + constant) & MASK) >> 32) & ((1 << (bits - low)) - 1)
            else:
                right ^= (mix((left + constant) & MASK) >> 32) & ((1 << low) - 1)
        x = left << low | right
        if x < size:
            return x
