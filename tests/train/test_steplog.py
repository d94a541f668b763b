"""Records hold what the steps did: traffic of each step, metrics of all ranks, no time or traffic of evaluations."""

from pathlib import Path
from typing import Any

import pytest

from dlrmx.data.prepare import prepare
from dlrmx.parallel.wire import Wire
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.records import read_records
from ranks import run_ranks
from training import make_recipe, run_session


def trained(root: Path, data: Path, kind: str) -> Path:
    recipe = make_recipe(14, dense="sgd", exchange={"overlap": False})
    return run_session(Wire(overlap=False), root, data, recipe, kind=kind).parent.parent


def both(root: Path, data: Path) -> tuple[Path, Path]:
    return trained(root, data, "row_wise"), trained(root, data, "table_wise")


@pytest.fixture(scope="module")
def of_both(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    root = tmp_path_factory.mktemp("steplog")
    data = prepare(make_recipe(14), root)
    return [read_records(RunPaths(run)) for run in run_ranks(2, both, root, data)[0]]


@pytest.fixture
def records(of_both: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return of_both[0]


def test_there_is_one_record_per_three_steps_and_for_the_last(records: Any) -> None:
    assert [r["step"] for r in records if r["kind"] == "step"] == [3, 6, 9, 12, 14]


def test_evaluations_are_recorded_where_they_were_asked_for(records: Any) -> None:
    found = [(r["step"], r["split"], r["final"]) for r in records if r["kind"] == "evaluation"]
    assert found == [(7, "validation", False), (14, "validation", False), (14, "test", True)]


def test_traffic_is_that_of_one_training_step(records: Any) -> None:
    steps = {r["step"]: r["bytes"] for r in records if r["kind"] == "step"}
    # By hand: to the one other rank a header of 4 numbers and 2 for each of 5 slots, 4 bytes each; rank 1 of `three`
    # serves all slots, as does rank 0.
    assert {sent["counts"] for sent in steps.values()} == {4 * (4 + 2 * 5)}
    assert all(r["bytes_out"] == r["bytes"] for r in records if r["kind"] == "step"), "each rank is a node of its own"
    # The record that an evaluation falls into counts no more than the others, but for the random lengths of bags.
    assert steps[9]["ids"] == pytest.approx(steps[6]["ids"], rel=0.1)
    assert steps[9]["vectors"] == pytest.approx(steps[6]["vectors"], rel=0.1)


def test_traffic_is_the_mean_over_ranks(of_both: list[list[dict[str, Any]]]) -> None:
    """Where each table is whole on one of two ranks, one sends more vectors and the other more gradients; of all
    vectors that travel the gradients come back, and with them a flag of 4 bytes from each rank."""
    for record in of_both[1]:
        if record["kind"] == "step":
            assert record["bytes"]["vectors"] > 0
            assert record["bytes"]["gradients"] == pytest.approx(record["bytes"]["vectors"] + 4, abs=1)


def test_metrics_are_of_all_rows_of_all_ranks(records: Any) -> None:
    for record in records:
        if record["kind"] == "step":
            assert 0.2 < record["loss"] < 1.5
            assert record["ne"] > 0
            assert record["samples_per_s"] > 0
            assert record["rss_bytes"] > 50 << 20


def test_times_are_of_every_rank_and_of_training_alone(records: Any) -> None:
    for record in records:
        if record["kind"] != "step":
            continue
        stages, exposed = record["stage_ms"], record["exposed_ms"]
        assert {len(values) for values in (*stages.values(), *exposed.values())} == {2}
        whole = sum(values[0] for values in stages.values())
        assert 0.5 * record["step_ms"] < whole < 1.1 * record["step_ms"], "evaluations are left out of both"
        assert sum(values[0] for values in exposed.values()) < whole
        assert min(stages["update"]) > 0
        assert min(exposed["ids"]) > 0
