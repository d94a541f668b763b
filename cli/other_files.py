"""Files that a trained model is to score: prepared as its own were, checked before a job starts."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrmx.errors import InputError

from . import start

if TYPE_CHECKING:
    from dlrmx.plan.shards import Plan
    from dlrmx.recipe.load import Loaded

    from .live import View

SHOWN = "files"  # what records call the rows, in the place of a split's name


def asked(checkpoint: Path, predict: Path | None, *, split: str | None) -> dict[str, str]:
    """The job's words for evaluating a checkpoint on a split of its own data, or (None) on other files.

    Raises InputError where `predict` cannot be a new file.
    """
    words = {"checkpoint": str(checkpoint), "split": split or SHOWN}
    if split is None:
        words["trained_on"] = str(_trained_on(checkpoint))
    if predict is None:
        return words
    path = predict.absolute()
    if path.exists():
        raise InputError(f"{predict} exists already", hint="Give another file name.")
    if not path.parent.is_dir():
        raise InputError(f"{predict}: there is no folder {path.parent}", hint="Make it first.")
    return {**words, "predict": str(path)}


def with_files(loaded: "Loaded", patterns: Sequence[str]) -> "Loaded":
    """The recipe on other files, with no rows set apart. InputError where its data come from no files."""
    from dlrmx.data.files import as_pattern
    from dlrmx.recipe.schema import Evaluate, Split, Synthetic

    recipe = loaded.recipe
    if isinstance(recipe.data, Synthetic):
        raise InputError("--data: the model was trained on synthetic data, which has no files of its kind")
    files = [as_pattern(os.path.abspath(pattern)) for pattern in patterns]
    data = recipe.data.model_copy(update={"files": files, "split": Split(validation=0, test=0)})
    train = recipe.train.model_copy(update={"evaluate": Evaluate(at_end=None)})
    return replace(loaded, recipe=recipe.model_copy(update={"data": data, "train": train}))


def prepare_and_plan(loaded: "Loaded", view: "View", words: dict[str, str]) -> "Plan | None":
    """As that of start.py; None for a cluster's job, which does both itself.

    InputError where there is nothing to do: no labels to measure by, and no scores wanted.
    """
    from dlrmx.data.manifest import read_manifest

    if loaded.profile.scheduler != "local":
        return None
    view.show({"event": "phase", "phase": "prepare"})
    path = start.prepare(loaded, view, trained_on=Path(words["trained_on"]))
    if "predict" not in words and read_manifest(path).splits["train"].label_mean is None:
        raise InputError("no row of these files has a label, so nothing can be measured", hint=_PREDICT)
    view.show({"event": "phase", "phase": "plan"})
    return start.plan(loaded, path)


_PREDICT = "To score them: --predict FILE."


def _trained_on(checkpoint: Path) -> Path:
    """The prepared data of the checkpoint's run, wherever its root lies now."""
    from dlrmx.checkpoint.manifest import read_manifest
    from dlrmx.runs.layout import RunPaths, prepared_dir

    run = RunPaths(checkpoint.parent.parent)
    attempt = run.attempt(read_manifest(checkpoint).attempt)
    path = Path(json.loads(attempt.job.read_text())["data"])
    moved = prepared_dir(run.dir.parent, path.name)
    return moved if moved.is_dir() else path
