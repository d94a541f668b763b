"""What an attempt is given, worked out before any worker starts: data, plan, checkpoint; job.json names them."""

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dlrmx import __version__
from dlrmx.checkpoint.manifest import read_manifest
from dlrmx.errors import InputError
from dlrmx.launch.job import JobSpec
from dlrmx.launch.stopping import StopRequested
from dlrmx.plan.shards import Plan
from dlrmx.recipe.fingerprint import fingerprint
from dlrmx.recipe.load import read_frozen
from dlrmx.recipe.profiles import Profile
from dlrmx.recipe.schema import Recipe, Steps
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.run_file import read_run, write_aside

PROGRESS_EVERY_S = 0.5


def parse_recipe(text: str) -> Recipe:
    """The recipe that a job carries. Raises InputError where it is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(text)
        return read_frozen(path)


def write_inputs(
    spec: JobSpec, recipe: Recipe, profile: Profile, attempt: AttemptPaths, *, stop_asked: Callable[[], bool]
) -> None:
    """Write the attempt's recipe.yaml, plan.json and job.json, preparing the data where they are not.

    Raises InputError (data, plan or checkpoints are not as they should be) and StopRequested.
    """
    attempt.recipe.write_text(spec.recipe)
    append_event(attempt, "phase", phase="prepare")
    data = prepare_data(spec, recipe, _Teller(attempt, stop_asked))
    append_event(attempt, "phase", phase="plan")
    plan = job_plan(recipe, profile, data)
    if spec.plan_hash not in (None, plan.hash):
        hint = "it was made from other data, on a machine of another size, or by another dlrmx: submit again"
        raise InputError(f"the plan here is {plan.hash}, the job asks for {spec.plan_hash}", hint=hint)
    write_aside(attempt.plan, plan.to_json())
    checkpoint = _checkpoint(spec, recipe, attempt)
    order, rows = _training_rows(data)
    if checkpoint is not None and spec.evaluate is None:
        _refuse_other_rows(attempt, order, rows)
    job = {
        "version": 1,
        "dlrmx": __version__,
        "world": plan.world,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "from_step": 0 if checkpoint is None else read_manifest(checkpoint).step,
        "plan_hash": plan.hash,
        "predicted": _predicted(plan, recipe, profile, data),
        "data": str(data),
        "training_rows": rows,
        "order": order,
        "evaluate": spec.evaluate,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    write_aside(attempt.job, json.dumps(job, indent=2) + "\n")


def _predicted(plan: Plan, recipe: Recipe, profile: Profile, data: Path) -> dict[str, float]:
    """What `dlrmx report` shows beside what is measured: a step's seconds, bytes by which the fullest worker grows."""
    from dlrmx.data.manifest import read_manifest
    from dlrmx.plan.cost import predict
    from dlrmx.plan.memory import WORKER_BYTES
    from dlrmx.plan.topology import topology_of

    topology = topology_of(profile)
    prediction = predict(plan, recipe, topology, read_manifest(data))
    fullest = max(memory.total_bytes for memory in prediction.memory) + WORKER_BYTES[topology.device]
    return {"step_s": prediction.step_s, "memory_bytes": fullest}


def _training_rows(data: Path) -> tuple[str, str]:
    """The order in which rows are taken, and what stands for them in that order."""
    from dlrmx.data import manifest

    prepared = manifest.read_manifest(data)
    return prepared.order, manifest.training_rows(prepared)


def _refuse_other_rows(attempt: AttemptPaths, order: str, rows: str) -> None:
    """A checkpoint's data position means nothing in other rows than those that its run has trained on."""
    for earlier in reversed(RunPaths(attempt.dir.parent.parent).attempts()):
        try:
            job = json.loads(earlier.job.read_bytes())
            before, began_with = job.get("training_rows"), job.get("order", order)
        except (OSError, ValueError, AttributeError):
            continue  # an attempt that got no job
        if began_with != order:
            hint = "resume with the dlrmx that it began with, or start anew from the weights: train.init_from"
            raise InputError(
                f"the run began with rows in order {began_with}, this dlrmx takes them in {order}", hint=hint
            )
        if before not in (None, rows):
            hint = "put the files back as they were, or start anew from the weights: train.init_from"
            raise InputError("the training rows are not those that the run began with: its data changed", hint=hint)
        if before is not None:
            return


def job_plan(recipe: Recipe, profile: Profile, data: Path) -> Plan:
    """The plan of a job over prepared data: from the recipe's plan file, or made. Raises InputError."""
    from dlrmx.data import manifest
    from dlrmx.plan.load import load_plan
    from dlrmx.plan.planner import make_plan
    from dlrmx.plan.topology import topology_of

    topology = topology_of(profile)
    if recipe.sharding.plan != "auto":
        return load_plan(Path(recipe.sharding.plan), recipe, topology)
    return make_plan(recipe, topology, manifest.read_manifest(data))


def prepare_data(
    spec: JobSpec, recipe: Recipe, report: Callable[[str, int, int | None], None], *, node: int = 0
) -> Path:
    """The job's prepared data, made unless they are there: nodes that share the root divide the work.

    `report` hears of rows done, and may raise to stop.
    """
    from dlrmx.data.prepare import prepare

    trained_on = (spec.evaluate or {}).get("trained_on")
    return prepare(
        recipe,
        Path(spec.root),
        progress=report,
        trained_on=Path(trained_on) if trained_on else None,
        node=node,
        nodes=spec.profile["nodes"],
    )


class _Teller:
    """Writes progress into the attempt's events, now and then; raises StopRequested where a stop was asked for."""

    def __init__(self, attempt: AttemptPaths, stop_asked: Callable[[], bool]) -> None:
        self._attempt, self._stop_asked = attempt, stop_asked
        self._told = 0.0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if self._stop_asked():
            raise StopRequested
        if time.monotonic() - self._told >= PROGRESS_EVERY_S:
            self._told = time.monotonic()
            append_event(self._attempt, "progress", phase="prepare", what=what, done=done, total=total)


def _checkpoint(spec: JobSpec, recipe: Recipe, attempt: AttemptPaths) -> Path | None:
    """What to start from: the one asked for, else the newest good one; None to start at step 0."""
    from dlrmx.checkpoint.retain import newest_good

    if spec.evaluate is not None:
        return Path(spec.evaluate["checkpoint"])
    run = RunPaths(attempt.dir.parent.parent)
    # Later attempts of this job go on from what the first one reached.
    if spec.from_step is not None and attempt.number == spec.after_attempt + 1:
        _go_back(run, spec.from_step, attempt)
    newest, reasons = newest_good(run)
    if newest is None and reasons:
        hint = "`dlrmx train` starts a new run; this one is left as it is"
        raise InputError(f"no checkpoint of run {run.name} is good:\n" + "\n".join(reasons), hint=hint)
    if newest is not None:
        _refuse_stranger(newest, recipe, run)
        refuse_earlier_end(newest, recipe)
    return newest


def _refuse_stranger(checkpoint: Path, recipe: Recipe, run: RunPaths) -> None:
    """Another recipe's checkpoint may have the same tensors, and another meaning."""
    theirs, ours = read_manifest(checkpoint).state.get("fingerprint"), fingerprint(recipe)
    if theirs not in (None, ours, read_run(run)["fingerprint"]):  # the run's: as the dlrmx that began it had it
        hint = f"move it away; to start from its weights: dlrmx train RECIPE -s train.init_from={checkpoint}"
        raise InputError(f"{checkpoint}: was written by another recipe ({theirs}, not {ours})", hint=hint)


def refuse_earlier_end(checkpoint: Path, recipe: Recipe) -> None:
    """Training cannot end before what a checkpoint has trained on already. Raises InputError."""
    manifest, stop = read_manifest(checkpoint), recipe.train.stop
    if isinstance(stop, Steps):
        wanted, over = f"train.stop.steps: {stop.steps:,}", manifest.step > stop.steps
    else:
        epoch, row = (manifest.state.get(key) or 0 for key in ("epoch", "row"))
        assert isinstance(epoch, int) and isinstance(row, int)
        wanted, over = f"train.stop.epochs: {stop.epochs:,}", epoch + (row > 0) > stop.epochs
    if over:
        what = f"{wanted}: training would end before step {manifest.step:,}, which {checkpoint.name} has reached"
        raise InputError(what, hint="let it end later, or go back with `dlrmx resume RUN --from STEP`")


def _go_back(run: RunPaths, step: int, attempt: AttemptPaths) -> None:
    """Set the checkpoints above `step` aside, so that the one at `step` is the newest. It must be good."""
    from dlrmx.checkpoint.retain import list_checkpoints, set_aside
    from dlrmx.checkpoint.verify import problems

    found = [info.path for info in list_checkpoints(run) if info.kind == "checkpoint" and info.step == step]
    if not found:
        hint = f"`dlrmx checkpoints list {run.name}` shows what there is"
        raise InputError(f"run {run.name} has no checkpoint at step {step:,}", hint=hint)
    if damage := problems(found[0]):
        raise InputError(f"the checkpoint at step {step:,} is damaged:\n" + "\n".join(damage))
    set_aside(run, step, attempt.number)
