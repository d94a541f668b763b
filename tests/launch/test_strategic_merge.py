from typing import Any

import pytest

from dlrmx.launch.strategic_merge import strategic_merge

# (base, patch, expected), as `kubectl patch --type strategic --dry-run` answers for pods.
CASES: list[tuple[Any, Any, Any]] = [
    ({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}),
    ({"a": 1}, {"a": None, "b": None}, {}),
    ({"args": [1, 2]}, {"args": [3]}, {"args": [3]}),
    ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
    (
        {"containers": [{"name": "node", "image": "x"}]},
        {"containers": [{"name": "node", "tty": True}, {"name": "side", "image": "y"}]},
        {"containers": [{"name": "node", "image": "x", "tty": True}, {"name": "side", "image": "y"}]},
    ),
    (
        {"volumeMounts": [{"mountPath": "/a", "name": "one"}]},
        {"volumeMounts": [{"mountPath": "/a", "name": "two"}, {"mountPath": "/b", "name": "one"}]},
        {"volumeMounts": [{"mountPath": "/a", "name": "two"}, {"mountPath": "/b", "name": "one"}]},
    ),
    ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
]


@pytest.mark.parametrize(("base", "patch", "expected"), CASES)
def test_merging(base: Any, patch: Any, expected: Any) -> None:
    before = repr(base)
    assert strategic_merge(base, patch) == expected
    assert repr(base) == before
