"""The busiest rows and their share, held against plain counting over the stored ids; exact and sampled."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_recipes import recipe, whole
from dlrmx.data import hot_rows, lookups
from dlrmx.data.manifest import FeatureFacts, read_manifest
from dlrmx.data.prepare import prepare
from dlrmx.data.splits import SPLITS

ROWS = 5000


def prepared(root: Path) -> tuple[FeatureFacts, FeatureFacts, Counter[int], Counter[int]]:
    """A one-hot feature and one with bags; and how often each row is stored."""
    data = {"kind": "synthetic", "rows": 20_000, "zipf": 1.1, "pooling": {"tags": {"mean": 2, "max": 5}}}
    folder = prepare(recipe(data, {"item": {}, "tags": {}}, {"item": ROWS, "tags": ROWS}), root)
    counts = {
        name: Counter(np.concatenate([whole(folder, split).bags[name].ids for split in SPLITS]).tolist())
        for name in ("item", "tags")
    }
    facts = read_manifest(folder).features
    return facts["item"], facts["tags"], counts["item"], counts["tags"]


def share(counts: Counter[int], fraction: float) -> float:
    taken = sorted(counts.values(), reverse=True)
    return sum(taken[: round(fraction * ROWS)]) / sum(taken)


def test_all_rows_are_counted(tmp_path: Path) -> None:
    item, tags, item_counts, tags_counts = prepared(tmp_path)
    for facts, counts in ((item, item_counts), (tags, tags_counts)):
        assert facts.sampled == 0
        assert facts.top == [list(pair) for pair in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:10]]
        for fraction, found in facts.hot[1:]:
            assert found == pytest.approx(share(counts, fraction), abs=1e-6)
        assert facts.share_of_hottest(0.01) == pytest.approx(share(counts, 0.01), abs=1e-6)
        assert (facts.share_of_hottest(0), facts.share_of_hottest(1)) == (0, 1)
        # The hottest ten-thousandth is half a row.
        assert facts.hot[0] == [0.0001, pytest.approx(max(counts.values()) / counts.total() / 2, abs=1e-6)]


def test_a_large_table_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "COUNTED_ROWS", ROWS // 2)
    monkeypatch.setattr(hot_rows, "SAMPLED", 8000)
    item, tags, item_counts, tags_counts = prepared(tmp_path)
    for facts, counts in ((item, item_counts), (tags, tags_counts)):
        assert 5000 < facts.sampled <= 8003
        most = max(counts, key=lambda row: counts[row])
        assert facts.top[0] == [most, pytest.approx(counts[most], rel=0.1)]
        for fraction, found in facts.hot[1:]:
            assert found == pytest.approx(share(counts, fraction), abs=0.05), fraction


def test_few_look_ups_in_a_large_table_are_all_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "COUNTED_ROWS", ROWS // 2)
    item, _, counts, _ = prepared(tmp_path)
    assert item.sampled == 0
    assert item.top[0] == list(counts.most_common(1)[0])
    assert item.share_of_hottest(0.1) == pytest.approx(share(counts, 0.1), abs=1e-6)
