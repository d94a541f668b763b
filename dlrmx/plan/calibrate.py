"""Constants of a machine, from the steps of small models that were trained on it.

One stretch of a step tells of several constants at once, and messages, threads and caches are in each other's way as no
trial of one operation shows. So the constants are those whose predictions come nearest to what the samples' stretches
took: least squares of logarithms, pulled towards what was measured of one operation alone, where that was.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from dlrmx.plan.cost import predict
from dlrmx.plan.prediction import Prediction
from dlrmx.plan.samples import SAMPLES
from dlrmx.plan.topology import Topology
from dlrmx.plan.workload import Floats

# Stretches of a step: stages as the planner has them, and as a worker takes their time. Where work of one exchange is
# done early, as the worker does, it stays in the stretch.
STRETCHES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("ids",), ("read", "ids", "route")),
    (("lookup", "vectors", "dense_forward"), ("look_up", "vectors", "bottom", "top")),
    (("dense_backward", "gradients", "all_reduce"), ("backward", "gradients", "dense")),
    (("update",), ("update",)),
)
# By how much a constant may be off from what it begins with (logarithm), and which there are.
SPREADS = {
    "hbm_rate": 0.5,
    "up_rate": 0.5,
    "up_latency_s": 0.5,
    "fp32_flops": 0.2,
    "op_s": 1.0,
    "id_s": 0.7,
    "step_s": 2.0,
    "feature_s": 2.0,
    "row_s": 2.0,
    "update_s": 2.0,
    "vector_s": 2.0,
    "number_s": 2.0,
    "product_s": 2.0,
    "parameter_s": 2.0,
    "cache_bytes": 0.5,
    "achieved.hbm": 0.5,
    "achieved.all_to_all_up": 1.0,
}
ERROR = 0.1  # of a prediction of a whole step, as taken here: relative
DISTURBED = 2.0  # of such errors: from there on, something else ran on the machine, and a sample counts for less
ROUNDS = 8
NUDGE = 1e-3


def calibrated(begin: Topology, taken: Mapping[str, Mapping[str, float]]) -> Topology:
    """`begin` with the constants that fit best; taken: seconds by sample and stage of dlrmx.train.stages.

    The ranks of `begin` are those that were measured. Deterministic.
    """
    links = ("up_rate", "up_latency_s", "achieved.all_to_all_up")
    names = [name for name in SPREADS if begin.world > 1 or name not in links]
    spreads = np.array([SPREADS[name] for name in names])
    predictions = {name: _predicted(name, begin.world) for name in taken}

    def errors(moved: Floats) -> Floats:
        topology = _moved(begin, names, moved)
        parts = [_errors(predictions[name](topology), stages) for name, stages in taken.items()]
        return np.concatenate([*parts, moved / spreads])

    moved = np.zeros(len(names))
    for _ in range(ROUNDS):
        now = errors(moved)
        slopes = [(errors(moved + NUDGE * unit) - now) / NUDGE for unit in np.eye(len(names))]
        weights = 1 / np.sqrt(1 + (now / DISTURBED) ** 2)
        step = np.linalg.lstsq(np.stack(slopes, axis=1) * weights[:, None], -now * weights, rcond=None)[0]
        moved = moved + np.clip(step, -1, 1)
    return _moved(begin, names, moved)


def _predicted(sample: str, world: int) -> Callable[[Topology], Prediction]:
    recipe, plan = SAMPLES[sample].recipe(), SAMPLES[sample].plan(world)
    return lambda topology: predict(plan, recipe, topology)


def _errors(prediction: Prediction, stages: Mapping[str, float]) -> Floats:
    """Of the whole step, and of each stretch by the root of its share."""
    whole, found = sum(stages.values()), []
    for ours, theirs in STRETCHES:
        seconds = sum(stages[stage] for stage in theirs)
        foretold = sum(getattr(prediction.exposed, stage) for stage in ours)
        found.append(np.log(foretold / seconds) * np.sqrt(seconds / whole))
    return np.array([np.log(prediction.step_s / whole), *found]) / ERROR


def _moved(begin: Topology, names: list[str], moved: Floats) -> Topology:
    by = {name: float(np.exp(value)) for name, value in zip(names, moved, strict=True)}
    shares = {
        name: min(1.0, share * by[f"achieved.{name}"])
        for name, share in vars(begin.achieved).items()
        if f"achieved.{name}" in by
    }
    own = {name: getattr(begin, name) * factor for name, factor in by.items() if not name.startswith("achieved.")}
    return replace(begin, **own, achieved=replace(begin.achieved, **shares))
