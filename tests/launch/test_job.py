import json
from dataclasses import replace

import pytest

from dlrmx.errors import InputError
from dlrmx.launch.job import JobSpec

SPEC = JobSpec(
    dlrmx="0.1.0",
    run="ctr-1",
    root="/runs",
    recipe="dlrmx: 1\nname: 'it''s'\n# ä $HOME\n",
    profile={"env": {"NCCL_IB_HCA": "mlx5_0,mlx5_1"}},
    plan_hash="abc",
    resume={"from_step": None, "after_attempt": 3},
    evaluate={"checkpoint": "/runs/ctr-1/checkpoints/step-00000010", "split": "test"},
)


def test_a_job_survives_the_journey() -> None:
    assert JobSpec.from_json(SPEC.to_json()) == SPEC
    assert JobSpec.from_variable(SPEC.to_variable()) == SPEC
    assert json.loads(SPEC.to_variable())["run"] == "ctr-1"


def test_a_job_can_be_read_by_people_and_then_by_a_node() -> None:
    readable = SPEC.readable()
    assert JobSpec.from_variable(readable) == SPEC
    assert "    \"name: 'it''s'\",\n" in readable


def test_a_job_too_large_for_a_variable_is_compressed() -> None:
    features = "".join(f"  feature_{n}: {{column: c{n}, table: table_{n * 7919 % 3000}}}\n" for n in range(3000))
    large = replace(SPEC, recipe=features)
    assert len(large.to_json()) > 128 * 1024
    assert len(large.to_variable()) < 96 * 1024
    assert JobSpec.from_variable(large.to_variable()) == large


@pytest.mark.parametrize(
    "value",
    ["", "{", "[]", "{}", '{"version": 2}', '{"version": 1, "who": "?"}', "zlib:x", "zlib:eA==", "zlib:eJwrBgAAdAB0"],
)
def test_what_is_no_job_is_refused(value: str) -> None:
    with pytest.raises(InputError):
        JobSpec.from_variable(value)


def test_a_first_start_comes_after_no_attempt() -> None:
    first = replace(SPEC, resume=None)
    assert (first.from_step, first.after_attempt) == (None, 0)
    assert replace(SPEC, resume={"from_step": 7}).from_step == 7
    assert SPEC.after_attempt == 3
