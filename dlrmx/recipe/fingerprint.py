"""Which settings a resume may not change, as a fingerprint and as a list of what differs."""

import hashlib
import json
from typing import Any

from dlrmx.recipe.schema import Recipe
from dlrmx.recipe.tree import leaves


def fingerprint(recipe: Recipe) -> str:
    """12 hexadecimal digits over all fixed settings: equal for two recipes between which a run may be resumed."""
    canonical = json.dumps(_fixed(recipe), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def changed_fixed(old: Recipe, new: Recipe) -> list[str]:
    """Each fixed setting that differs, as "key: old -> new"; empty when a resume may go from one to the other.

    A section that is null in one and has settings in the other is told by these.
    """
    before, after = _fixed(old), _fixed(new)
    keys = [key for key in dict.fromkeys([*before, *after]) if (before.get(key), after.get(key)) != (None, None)]
    return [
        f"{key}: {_show(before, key)} -> {_show(after, key)}" for key in keys if _show(before, key) != _show(after, key)
    ]


def _fixed(recipe: Recipe) -> dict[str, Any]:
    """The fixed settings by dotted key. The order of dense columns and features counts: it is the model's input."""
    return {
        **dict(leaves(recipe, fixed_only=True)),
        "dense (order)": list(recipe.dense),
        "features (order)": list(recipe.features),
    }


def _show(settings: dict[str, Any], key: str) -> str:
    return json.dumps(settings[key]) if key in settings else "(absent)"
