"""The first recipe that anyone runs learns what was planted, and only with its tables."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dlrmx.data.batches import Split
from dlrmx.data.prepare import prepared_path
from dlrmx.recipe.load import find_recipe, load_recipe

DLRMX = Path(sys.executable).with_name("dlrmx")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quickstart")


def train(root: Path, *settings: str) -> dict[str, Any]:
    """Train quickstart in a new run; its final evaluation."""
    options = [word for setting in (f"cluster.root={root}", *settings) for word in ("-s", setting)]
    env = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
    done = subprocess.run([DLRMX, "train", "quickstart", *options], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = max(root.glob("quickstart-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    records = [json.loads(line) for line in (run / "attempts" / "0001" / "records.jsonl").read_text().splitlines()]
    final: dict[str, Any] = next(r for r in records if r["kind"] == "evaluation" and r["final"])
    return final


@pytest.fixture(scope="module")
def trained(root: Path) -> dict[str, Any]:
    return train(root)


def test_it_comes_within_two_percent_of_the_planted_optimum(trained: dict[str, Any]) -> None:
    assert trained["split"] == "test"
    assert trained["optimum_ne"] <= 0.75
    assert trained["optimum_ne"] <= trained["ne"] <= 1.02 * trained["optimum_ne"]


def test_the_dense_inputs_alone_are_far_behind(trained: dict[str, Any], root: Path) -> None:
    folder = prepared_path(load_recipe(find_recipe("quickstart")).recipe, root)
    train_rows, test_rows = Split(folder, "train"), Split(folder, "test")
    seen, unseen = train_rows.take(np.arange(200_000)), test_rows.take(np.arange(test_rows.rows))
    model = LogisticRegression().fit(seen.dense, seen.labels)
    mean = unseen.labels.astype(float).mean()
    entropy = -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean))
    ne = log_loss(unseen.labels, model.predict_proba(unseen.dense)[:, 1]) / entropy
    assert ne >= trained["ne"] + 0.10


def test_frozen_tables_are_far_behind(trained: dict[str, Any], root: Path) -> None:
    frozen = train(root, "optimizer.sparse.lr=1e-30")
    assert frozen["ne"] >= 1.05 * trained["ne"]


def test_it_is_hybrid_and_has_enough_tables() -> None:
    recipe = load_recipe(find_recipe("quickstart")).recipe
    assert len(recipe.tables) >= 8
    assert sum(pooling.max > 1 for pooling in recipe.data.pooling.values()) >= 1  # type: ignore[union-attr]
    asked = {kind for table in recipe.sharding.tables.values() for kind in table.types or ()}
    assert asked >= {"row_wise", "table_wise"}
