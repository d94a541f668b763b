"""Look-ups by row, held against plain counting, for small tables and for those too large to count each row."""

from collections import Counter

import numpy as np
import pytest

from dlrmx.data import lookups as module
from dlrmx.data.lookups import Lookups

IDS = (np.random.default_rng(5).random(20_000) ** 3 * 3000).astype(np.int64)


@pytest.fixture(params=[2**21, 1000])
def counted_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The table of 3,000 rows is below the limit, then above it."""
    monkeypatch.setattr(module, "COUNTED_ROWS", request.param)
    return min(int(request.param), 3000)


def test_counts_ranges_and_different_rows(counted_rows: int) -> None:
    lookups = Lookups(3000)
    for part in np.array_split(IDS, 7):
        lookups.add(part)
    counts = Counter(IDS.tolist())
    assert lookups.counts.tolist() == [counts[row] for row in range(counted_rows)]
    ranges = Counter(row * 64 // 3000 for row in IDS.tolist())
    assert lookups.histogram.tolist() == [ranges[number] for number in range(64)]
    assert lookups.distinct == len(counts)


def test_what_others_wrote_adds_up(counted_rows: int) -> None:
    whole, joined = Lookups(3000), Lookups(3000)
    whole.add(IDS)
    for part in np.array_split(IDS, 3):
        one = Lookups(3000)
        one.add(part)
        joined.join(one.to_bytes())
    assert joined.to_bytes() == whole.to_bytes()
    assert joined.distinct == whole.distinct


def test_different_rows_of_a_huge_table_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_ROWS", 2**12)
    monkeypatch.setattr(module, "COUNTED_ROWS", 2**10)
    lookups = Lookups(2**20)
    lookups.add(np.random.default_rng(1).permutation(2**20)[:5000])
    assert abs(lookups.distinct - 5000) < 250
