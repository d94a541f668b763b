"""Constants that are found again in the steps that they predict."""

from dataclasses import replace

import pytest

from dlrmx.plan.calibrate import STRETCHES, calibrated
from dlrmx.plan.cost import predict
from dlrmx.plan.samples import SAMPLES
from dlrmx.plan.topology import Topology
from plan_recipes import processors

USED = ("small", "many", "scattered", "copied", "layers", "bags")


def stages(name: str, topology: Topology) -> dict[str, float]:
    """A step as a worker of such a machine would take its time; what the planner has as one stretch in one stage."""
    prediction = predict(SAMPLES[name].plan(2), SAMPLES[name].recipe(), topology)
    found: dict[str, float] = {}
    for ours, theirs in STRETCHES:
        found |= dict.fromkeys(theirs, 0.0)
        found[theirs[-1]] = sum(getattr(prediction.exposed, stage) for stage in ours)
    return found


def test_another_machines_steps_are_predicted_from_its_samples() -> None:
    """It is two to four times slower in some ways, as fast in others; a model that was no sample shows it."""
    guess = processors(2, 1 << 40)
    true = replace(guess, id_s=4 * guess.id_s, step_s=3 * guess.step_s, up_rate=guess.up_rate / 2, vector_s=1e-7)
    found = calibrated(guess, {name: stages(name, true) for name in USED})
    other = SAMPLES["scattered-bags"]
    step_s = {
        name: predict(other.plan(2), other.recipe(), topology).step_s
        for name, topology in (("guess", guess), ("true", true), ("found", found))
    }
    assert step_s["guess"] < 0.8 * step_s["true"]
    assert step_s["found"] == pytest.approx(step_s["true"], rel=0.05)
    assert found.id_s == pytest.approx(true.id_s, rel=0.2)
    assert found.step_s == pytest.approx(true.step_s, rel=0.2)


def test_links_of_one_rank_are_left_as_they_were() -> None:
    alone = processors(1, 1 << 40)
    taken = {"small": {stage: 1e-3 for _, theirs in STRETCHES for stage in theirs}}
    found = calibrated(alone, taken)
    assert (found.up_rate, found.up_latency_s) == (alone.up_rate, alone.up_latency_s)
    assert predict(SAMPLES["small"].plan(1), SAMPLES["small"].recipe(), found).step_s == pytest.approx(11e-3, rel=0.1)
