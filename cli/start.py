"""From a recipe to a job that can be submitted: load, prepare, plan, spec. Nothing is started here."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrmx.errors import InputError, Problem, UnknownRun

from .live import View, open_view
from .output import say

if TYPE_CHECKING:
    from dlrmx.data.manifest import Manifest
    from dlrmx.launch.job import JobSpec
    from dlrmx.plan.shards import Plan
    from dlrmx.recipe.load import Loaded


def load(
    recipe: str, overrides: Sequence[str] | None, cluster: str | None = None, nodes: int | None = None
) -> "Loaded":
    """The recipe that the words mean, resolved; where a shipped one was taken, stderr says so."""
    from dlrmx.recipe.load import find_recipe, load_recipe

    path = find_recipe(recipe)
    if str(path) != recipe:
        say(f"recipe {path}")
    return _with_weights(load_recipe(path, overrides or [], cluster=cluster, nodes=nodes))


def _with_weights(loaded: "Loaded") -> "Loaded":
    """train.init_from may name a run or a checkpoint: from here on it is the path of one good checkpoint."""
    train = loaded.recipe.train
    if train.init_from is None:
        return loaded
    from .checkpoints import find_good_checkpoint

    try:
        path = find_good_checkpoint(train.init_from).absolute()
    except UnknownRun as error:
        what = f'"{train.init_from}" is no run and no checkpoint that is known here'
        problem = Problem(what, key="train.init_from", hint=error.hint)
        raise loaded.located(InputError([problem])) from None
    found = train.model_copy(update={"init_from": str(path)})
    return replace(loaded, recipe=loaded.recipe.model_copy(update={"train": found}))


def root_of(loaded: "Loaded") -> Path:
    """Where this machine finds the runs and prepared data of this recipe."""
    from dlrmx.runs.registry import seen_root

    return seen_root(loaded.profile)


def new_root(loaded: "Loaded") -> Path:
    """`root_of`, for a run that is to be made there. InputError where a cluster's file system is not mounted here."""
    from dlrmx.recipe.profiles import KubernetesProfile

    root, profile = root_of(loaded), loaded.profile
    pods = isinstance(profile, KubernetesProfile)
    copies = isinstance(profile, KubernetesProfile) and profile.root_here is None
    if profile.scheduler != "local" and not copies and not root.parent.is_dir():
        key = "cluster.root_here" if pods else "cluster.root"
        hint = f"is it mounted here? Else mkdir -p {root.parent}, or another folder: -s {key}=..."
        what = f"{root.parent} is no folder on this machine, so no run can be made in {root}"
        raise InputError([Problem(what, key=key, hint=hint)])
    return root


def as_nodes_see(loaded: "Loaded", words: dict[str, str]) -> dict[str, str]:
    """A job's words, with paths in the root as its nodes have them: this machine may see that elsewhere."""
    here = root_of(loaded).resolve()
    paths = {name: Path(text).resolve() for name, text in words.items() if os.path.isabs(text)}
    moved = {name: path.relative_to(here) for name, path in paths.items() if path.is_relative_to(here)}
    return {**words, **{name: str(Path(loaded.profile.root) / path) for name, path in moved.items()}}


def prepare(loaded: "Loaded", view: View, *, trained_on: Path | None = None) -> Path:
    """The recipe's prepared data, made now where they are not there. trained_on: of a model that is to score them."""
    from dlrmx.data.manifest import read_manifest
    from dlrmx.data.prepare import prepare as prepare_data

    from .data import bad_lines

    def progress(what: str, done: int, total: int | None) -> None:
        now = time.time()
        view.show({"event": "progress", "time": now, "phase": "prepare", "what": what, "done": done, "total": total})

    try:
        path = prepare_data(loaded.recipe, root_of(loaded), progress=progress, trained_on=trained_on)
    except InputError as error:
        raise error if trained_on else loaded.located(error) from None
    for line in bad_lines(read_manifest(path)):
        view.note(line)
    return path


def prepared(loaded: "Loaded") -> Path | None:
    """The prepared data; None where they are not there yet, or the files that they come from are elsewhere.

    Raises InputError where they are not what their name says.
    """
    from dlrmx.data.files import NoSuchFiles
    from dlrmx.data.prepare import check_prepared, prepared_path

    try:
        path = prepared_path(loaded.recipe, root_of(loaded))
    except NoSuchFiles:
        return None
    if not path.is_dir():
        return None
    check_prepared(path)
    return path


def missing_files(loaded: "Loaded") -> list[str]:
    """The patterns of data.files that match nothing on this machine, a note each. No file is opened."""
    from dlrmx.data.files import NoSuchFiles, find_files

    data = loaded.recipe.data
    if data.kind == "synthetic":
        return []
    try:
        find_files(data)
    except NoSuchFiles as error:
        return [f"{problem.key}: {problem.what} on this machine" for problem in error.problems]
    return []


def plan(loaded: "Loaded", data: Path | None) -> "Plan":
    """The plan that a job of this recipe would follow; without prepared data, from what the recipe says of them."""
    from dlrmx.launch.inputs import job_plan
    from dlrmx.plan.load import load_plan
    from dlrmx.plan.planner import make_plan
    from dlrmx.plan.topology import topology_of

    if data is not None:
        return job_plan(loaded.recipe, loaded.profile, data)
    recipe, topology = loaded.recipe, topology_of(loaded.profile)
    if recipe.sharding.plan != "auto":
        return load_plan(Path(recipe.sharding.plan), recipe, topology)
    return make_plan(recipe, topology)


def check_interpreter(loaded: "Loaded") -> None:
    """Raises InputError where the workers would be started with this Python and it cannot train."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "fbgemm_gpu") if find_spec(name) is None]
    if missing and loaded.profile.python is None:
        hint = "pip install 'dlrmx[cpu]' (or [cuda]), or let cluster.python name a Python that has them"
        raise InputError(f"training needs {' and '.join(missing)}, which {sys.executable} has not", hint=hint)


def prepare_and_plan(loaded: "Loaded", view: View) -> "Plan | None":
    """Prepare the data where they are not there, and plan with their facts.

    A cluster's job does both itself; None where its plan cannot be known before.
    """
    if loaded.profile.scheduler != "local":
        for line in [*missing_files(loaded), *stray_variables(loaded)]:
            view.note(line)
        return plan_ahead(loaded)
    _check_python(loaded)
    if prepared(loaded) is None:
        _check_ahead(loaded)
    view.show({"event": "phase", "phase": "prepare"})
    path = prepare(loaded, view)
    view.show({"event": "phase", "phase": "plan"})
    return plan(loaded, path)


def stray_variables(loaded: "Loaded") -> list[str]:
    """Variables of this shell that sbatch would take for the job's options, a note each."""
    if loaded.profile.scheduler != "slurm":
        return []
    names = sorted(name for name in os.environ if name.startswith("SBATCH_"))
    return [f"{name} is set in this shell: it is kept from the job, whose options are the profile's" for name in names]


def plan_ahead(loaded: "Loaded") -> "Plan | None":
    """The plan of a cluster's job, where its data are prepared and its nodes' memory is known here."""
    _check_runs(loaded)
    node = loaded.profile.node
    if loaded.profile.memory_gib is None and (node is None or node.kind in (None, "cpu")):
        return None
    data = prepared(loaded)
    if data is None:
        _check_ahead(loaded)
        return None
    return plan(loaded, data)


def _check_ahead(loaded: "Loaded") -> None:
    """Raises InputError for what no data could mend, before hours go into them: a bad plan file, too large tables."""
    least = loaded.recipe.train.model_copy(update={"batch": 1})
    try:
        plan(replace(loaded, recipe=loaded.recipe.model_copy(update={"train": least})), None)
    except InputError:
        plan(loaded, None)  # its numbers are the ones to tell


def _check_runs(loaded: "Loaded") -> None:
    """Raises InputError where the profile is one to plan for, and for nothing else."""
    if loaded.profile.scheduler == "none":
        hint = "name a cluster that you have (`dlrmx clusters list`), or --cluster local"
        raise InputError(
            [Problem("this profile has no scheduler: it can be planned for, not run on", key="cluster", hint=hint)]
        )


def _check_python(loaded: "Loaded") -> None:
    _check_runs(loaded)
    python = loaded.profile.python
    if python is not None and shutil.which(os.path.expanduser(python)) is None:
        raise InputError([Problem(f"{python} is no program that can be run here", key="cluster.python")])


def check_data(loaded: "Loaded") -> "Manifest":
    """Raises InputError for all that data and plan could do to the start of a run; reads every prepared byte."""
    from dlrmx.data.manifest import read_manifest, verify

    with open_view() as view:
        path = prepare(loaded, view)
    verify(path)
    plan(loaded, path)
    return read_manifest(path)


def job(
    loaded: "Loaded",
    run: str,
    *,
    planned: "Plan | None",
    resume: dict[str, int | None] | None = None,
    evaluate: dict[str, str] | None = None,
) -> "JobSpec":
    """The job of one run. The profile is written into its recipe, so that a resume finds what it ran on."""
    from dlrmx import __version__
    from dlrmx.launch.job import JobSpec
    from dlrmx.recipe.load import dump_recipe

    _check_runs(loaded)
    inline = loaded.profile.model_dump(mode="json", exclude_unset=True)
    return JobSpec(
        dlrmx=__version__,
        run=run,
        root=loaded.profile.root,
        recipe=dump_recipe(loaded.recipe.model_copy(update={"cluster": inline})),
        profile=loaded.profile.model_dump(mode="json"),
        plan_hash=planned.hash if planned else None,
        resume=resume,
        evaluate=evaluate,
    )


def next_name(loaded: "Loaded") -> str:
    """The name that the next run of this recipe would get."""
    from dlrmx.runs.claim import next_name as next_of

    return next_of(root_of(loaded), loaded.recipe.name, stamp(loaded))


def stamp(loaded: "Loaded") -> str:
    """The time, for a run's name, where this machine cannot see which numbers others' runs have; else nothing."""
    from dlrmx.runs.registry import unseen

    return time.strftime("%y%m%d-%H%M%S") if unseen(loaded.profile) else ""
