"""What is allowed and may surprise."""

from pathlib import Path

import pytest

from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.notes import notes


def test_notes(example: Path, tabular: Path) -> None:
    assert notes(load_recipe(example).recipe, ranks=2) == []
    assert "fp16 on CPU saves memory only" in notes(load_recipe(tabular).recipe, ranks=2)[0]
    assert "bottom MLP is skipped" in notes(load_recipe(example, ["dense={}"]).recipe, ranks=2)[0]
    sliced = ["sharding.tables.item={types: [row_wise, column_wise]}"]
    assert "different optimizer" in notes(load_recipe(example, sliced).recipe, ranks=2)[0]
    early = ["optimizer.schedule={kind: warmup_hold_decay, warmup: 20}", "train.stop={steps: 20}"]
    assert notes(load_recipe(example, early).recipe, ranks=2) == [
        "training ends (step 20) before the warm-up does (step 20)"
    ]


def test_more_chunks_than_rows_are_told(example: Path) -> None:
    recipe = load_recipe(example, ["train.batch=10", "exchange.chunks=6"]).recipe
    assert notes(recipe, ranks=2) == ["exchange.chunks: of 6 chunks of 5 rows some are empty"]
    assert notes(load_recipe(example, ["train.batch=10", "exchange.chunks=5"]).recipe, ranks=2) == []


def test_thresholds_that_are_never_found_anew_are_told(example: Path) -> None:
    settings = ["train.stop={steps: 20}", "exchange.threshold.dense={sparsity: 0.9, every: 20}"]
    assert notes(load_recipe(example, settings).recipe, ranks=2) == [
        "exchange.threshold.dense is found in the first step alone, of initial values: every 20 steps, of 20"
    ]
    assert notes(load_recipe(example, [*settings, "exchange.threshold.dense.every=19"]).recipe, ranks=2) == []


@pytest.mark.parametrize(
    "setting",
    [
        "exchange.forward=fp16",
        "exchange.backward=bf16",
        "exchange.dense=int8",
        "exchange.messages=16",
        "exchange.chunks=4",
        "exchange.threshold.dense.sparsity=0.9",
    ],
)
def test_what_is_asked_of_the_exchange_saves_one_worker_nothing(setting: str, example: Path) -> None:
    asked = load_recipe(example, [setting]).recipe
    assert notes(asked, ranks=2) == []
    (note,) = notes(asked, ranks=1)
    assert note.startswith(f"one worker sends nothing: {setting.partition('=')[0]} saves no time")
    assert notes(load_recipe(example).recipe, ranks=1) == []
