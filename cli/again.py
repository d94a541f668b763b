"""From a run that is there to a recipe that goes on with it: what a resume may change, and what stands in its way."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlrmx.errors import InputError, Problem

if TYPE_CHECKING:
    from dlrmx.recipe.load import Loaded
    from dlrmx.recipe.schema import Recipe
    from dlrmx.runs.layout import RunPaths


def newest_recipe(run: "RunPaths") -> "Recipe":
    """The recipe of a run's newest attempt."""
    from dlrmx.recipe.load import read_frozen

    return read_frozen(_frozen_recipe(run))


def load_for_checkpoint(path: Path) -> "Loaded":
    """The recipe that wrote a checkpoint, from the run that it lies in."""
    from dlrmx.checkpoint.manifest import read_manifest
    from dlrmx.recipe.load import load_recipe
    from dlrmx.runs.layout import RunPaths

    run = RunPaths(path.parent.parent)
    recipe = run.attempt(read_manifest(path).attempt).recipe
    if not recipe.is_file():
        raise InputError(f"{path}: the recipe that wrote it is not there ({recipe})", hint="name a run's checkpoint")
    loaded = load_recipe(recipe, [])
    if loaded.profile.scheduler != "kubernetes":
        return load_recipe(recipe, [_root_setting(run)])
    _refuse_elsewhere(run, loaded)
    return loaded


def load_again(
    run: "RunPaths",
    overrides: Sequence[str] | None,
    cluster: str | None,
    nodes: int | None,
    from_step: int | None = None,
) -> "Loaded":
    """The newest attempt's recipe, with changes. Raises InputError where they or the run's state allow no resume."""
    from dlrmx.recipe.load import load_recipe, read_frozen

    _refuse_evaluation(run)
    frozen = _frozen_recipe(run)
    before = read_frozen(frozen)
    loaded = load_recipe(frozen, overrides or [], cluster=cluster, nodes=nodes)
    if loaded.profile.scheduler != "kubernetes":
        loaded = load_recipe(frozen, [*(overrides or []), _root_setting(run)], cluster=cluster, nodes=nodes)
    _refuse_elsewhere(run, loaded)
    _refuse_fixed(before, loaded.recipe)
    _refuse_live_or_done(run, before, loaded.recipe, from_step)
    return loaded


def check_checkpoint(run: "RunPaths", from_step: int | None, recipe: "Recipe") -> None:
    """Raises InputError where that of `from_step` (None: any) is not good, or is beyond the recipe's end.

       A run that never saved begins anew.
    Those of a run that this machine cannot see are checked by its job.
    """
    from dlrmx.checkpoint.retain import newest_good
    from dlrmx.launch.inputs import refuse_earlier_end
    from dlrmx.runs.claim import is_copy

    from .checkpoints import say_passed_over

    if is_copy(run):
        return
    if from_step is not None:
        _check_step(run, from_step)
        refuse_earlier_end(run.checkpoint(from_step), recipe)
        return
    good, reasons = newest_good(run)
    if good is None and reasons:
        raise InputError("\n".join([f"no checkpoint of {run.name} is good; nothing was started", *reasons]))
    say_passed_over(reasons)
    if good is not None:
        refuse_earlier_end(good, recipe)


def _root_setting(run: "RunPaths") -> str:
    """The run's root is where it lies now, wherever it was made. Quoted: it is read as YAML."""
    return f"cluster.root={json.dumps(str(run.dir.parent))}"


def _frozen_recipe(run: "RunPaths") -> Path:
    """The newest attempt's recipe; one that was killed at its very start may have none."""
    for attempt in reversed(run.attempts()):
        if attempt.recipe.is_file():
            return attempt.recipe
    if run.recipe.is_file():
        return run.recipe  # its job was submitted, and never began
    raise InputError(
        f"run {run.name} never began: there is nothing to resume",
        hint=f"start it anew: dlrmx train RECIPE; its name is free once {run.dir} is deleted",
    )


def _refuse_elsewhere(run: "RunPaths", loaded: "Loaded") -> None:
    """A run goes on where its files are."""
    from .start import root_of

    if loaded.profile.scheduler == "kubernetes" and run.dir.parent.resolve() != root_of(loaded).resolve():
        what = f"run {run.name} is in {run.dir.parent}, and this cluster's runs are in {root_of(loaded)}"
        raise InputError(what, hint="root_here says where this machine sees the cluster's root")


def _refuse_fixed(before: "Recipe", after: "Recipe") -> None:
    from dlrmx.recipe.fingerprint import changed_fixed

    hint = "start a new run; train.init_from takes this run's weights along"
    if changed := changed_fixed(before, after):
        raise InputError([Problem(f"a resume cannot change {change}", hint=hint) for change in changed])


def _refuse_evaluation(run: "RunPaths") -> None:
    """An evaluation has no training to go on with: a resume would begin one from step 0."""
    from dlrmx.runs.run_file import read_run

    if checkpoint := read_run(run).get("evaluates"):
        hint = f"evaluate again: dlrmx evaluate {checkpoint}\n    train on: dlrmx resume {Path(checkpoint).parents[1]}"
        raise InputError(f"{run.name} is an evaluation: there is nothing to resume", hint=hint)


def _refuse_live_or_done(run: "RunPaths", before: "Recipe", after: "Recipe", from_step: int | None) -> None:
    from dlrmx.runs.claim import is_live
    from dlrmx.runs.state import run_state

    from .runs import words_for

    if is_live(run):
        raise InputError(f"run {run.name} is running already", hint=f"follow it with: dlrmx watch {words_for(run)}")
    state = run_state(run)
    if (
        state.state == "done"
        and from_step is None
        and not _goes_further(before, after, max(state.step or 0, state.total_steps or 0))
    ):
        unit, length = next(iter(before.train.stop.model_dump().items()))
        hint = f"train longer: dlrmx resume {words_for(run)} -s train.stop.{unit}={2 * length}"
        raise InputError(f"run {run.name} is done already ({unit}: {length:,})", hint=hint)


def _goes_further(before: "Recipe", after: "Recipe", total_steps: int) -> bool:
    """Whether training would end later than it did, after so many steps. How many an epoch has, only the data say."""
    (old_unit, old), (unit, new) = (next(iter(recipe.train.stop.model_dump().items())) for recipe in (before, after))
    if unit == old_unit:
        return bool(new > old)
    return unit != "steps" or bool(new > total_steps)


def _check_step(run: "RunPaths", step: int) -> None:
    from dlrmx.checkpoint.retain import list_checkpoints
    from dlrmx.checkpoint.verify import problems

    steps = [info.step for info in list_checkpoints(run) if info.kind == "checkpoint"]
    if step not in steps:
        raise InputError(
            f"run {run.name} has no checkpoint of step {step}", hint=f"it has: {', '.join(map(str, steps))}"
        )
    if wrong := problems(run.checkpoint(step)):
        raise InputError("\n".join([f"the checkpoint of step {step} is damaged", *wrong]))
