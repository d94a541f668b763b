"""Why a recipe has no prepared data, from what there is beside where they should lie."""

from pathlib import Path

from dlrmx.data.fit import differences
from dlrmx.data.manifest import Manifest, read_manifest
from dlrmx.data.prepare import data_identity
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.layout import prepared_dir

MOST_FILES = 5


def not_prepared(recipe: Recipe, root: Path, words: str) -> InputError:
    """The error for a recipe whose prepared data are not there. `words`: the recipe, as it is named on the command."""
    identity = data_identity(recipe)
    target = prepared_dir(root, identity.fingerprint)
    hint = f"prepare them: dlrmx data prepare {words}"
    if target.with_name(f".work-{target.name}").is_dir():
        return InputError(
            f"{target}: not prepared yet, but begun", hint=f"go on where it was: dlrmx data prepare {words}"
        )
    for path in sorted(target.parent.glob("[0-9a-f]*")):
        try:
            other = read_manifest(path)
        except InputError:
            continue
        if why := _difference(recipe, identity.transform, identity.sources, other):
            return InputError(f"{target}: not prepared yet; {path} is near: {why}", hint=hint)
    return InputError(f"{target}: not prepared yet", hint=hint)


def _difference(recipe: Recipe, transform: str, sources: list[list[str | int]], other: Manifest) -> str:
    """What sets other prepared data apart, of the same files or made alike; "" where they have nothing in common."""
    if other.transform == transform and sources:
        changed = _changed(other.sources, sources)
        return f"made alike, but {', '.join(changed[:MOST_FILES])}" if changed else ""
    if sources and [source[0] for source in other.sources] == [source[0] for source in sources]:
        return "; ".join(["of these files", *(differences(recipe, other)[:MOST_FILES] or ["rows are made otherwise"])])
    return ""


def _changed(before: list[list[str | int]], now: list[list[str | int]]) -> list[str]:
    old, new = ({str(source[0]): source[1:] for source in sources} for sources in (before, now))
    return [
        *(f"{path} is new" for path in new if path not in old),
        *(f"{path} is gone" for path in old if path not in new),
        *(f"{path} was changed since" for path in new if path in old and new[path] != old[path]),
    ]
