"""The run of a job, created or taken up, and which of its attempts are that job's."""

from pathlib import Path

from dlrmx.errors import InputError
from dlrmx.launch.job import JobSpec
from dlrmx.recipe.fingerprint import changed_fixed, fingerprint
from dlrmx.recipe.load import read_frozen
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.claim import create_run
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.run_file import read_run


def open_run(spec: JobSpec, recipe: Recipe) -> RunPaths:
    """The job's run, created where the launcher could not reach its root. InputError where it is another recipe's."""
    run = RunPaths(Path(spec.root) / spec.run)
    mine = fingerprint(recipe)
    if not run.run.exists():
        return create_run(Path(spec.root), recipe.name, spec.run, mine, adopt=True)
    if read_run(run)["fingerprint"] != mine:
        frozen = [attempt.recipe for attempt in run.attempts() if attempt.recipe.exists()]
        changed = changed_fixed(read_frozen(frozen[-1]), recipe) if frozen else []
        if frozen and not changed:
            return run  # another dlrmx began it, whose schema had fewer settings: all that it had are the same
        hint = "\n    ".join(["a resume cannot change these; to start from its weights use train.init_from", *changed])
        raise InputError(f"run {spec.run} in {spec.root} is of another recipe", hint=hint)
    return run


def attempts_of(spec: JobSpec, run: RunPaths) -> list[AttemptPaths]:
    """The attempts that this very job has made: by an earlier start of it."""
    return [attempt for attempt in run.attempts() if attempt.number > spec.after_attempt]
