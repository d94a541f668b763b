"""As a user does it: draft a recipe from labelled rows, train, score rows without labels."""

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import yaml

from hash_reference import MASK, mix

DLRMX = Path(sys.executable).with_name("dlrmx")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run, and the files that it was trained on and is to score."""
    folder, dice = tmp_path_factory.mktemp("shop"), random.Random(1)
    for name, rows, labelled in (("past", 3_000, True), ("future", 333, False), ("known", 100, True)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow([*(["clicked"] if labelled else []), "colour", "size"])
            for _ in range(rows):
                colour, size = dice.choice("abcd"), dice.choice("SML")
                clicked = [int(dice.random() < (0.9 if colour == "a" else 0.1))] if labelled else []
                table.writerow([*clicked, colour, size])
    dlrmx(folder, "init", "past.csv", "-o", "shop.yaml")
    dlrmx(folder, "train", "shop.yaml")
    return folder


def dlrmx(folder: Path, *words: str, expect: int = 0) -> str:
    """What a command prints on stderr."""
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run([DLRMX, *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stderr


def test_rows_without_labels_are_scored_in_their_order(shop: Path) -> None:
    assert f"scores: {shop / 'future.parquet'}" in dlrmx(
        shop, "evaluate", "shop-1", "--data", "future.csv", "--predict", "future.parquet"
    )
    table = parquet.read_table(shop / "future.parquet")
    assert table.column("label").null_count == 333
    colours = [line[0] for line in (shop / "future.csv").read_text().splitlines()[1:]]
    for colour, score in zip(colours, table.column("score").to_pylist(), strict=True):
        assert (score > 0.5) == (colour == "a")


def test_what_cannot_be_done_is_refused_before_anything_starts(shop: Path) -> None:
    def refused(*words: str) -> str:
        return dlrmx(shop, "evaluate", "shop-1", *words, expect=2)

    before = sorted((shop / "runs").glob("shop-1-eval-*"))
    assert "--predict FILE" in refused("--data", "future.csv")
    assert "exists already" in refused("--data", "future.csv", "--predict", "past.csv")
    assert "there is no folder" in refused("--data", "future.csv", "--predict", "gone/out.parquet")
    assert "no file matches" in refused("--data", "gone.csv", "--predict", "out.parquet")
    assert "--split is of" in refused("--data", "future.csv", "--split", "test")
    assert "there is no folder" in refused("--predict", "gone/out.parquet")
    assert sorted((shop / "runs").glob("shop-1-eval-*")) == before


def test_labelled_rows_are_measured(shop: Path) -> None:
    dlrmx(shop, "evaluate", "shop-1", "--data", "known.csv", "--data", "past.csv")
    run = max((shop / "runs").glob("shop-1-eval-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    record, *files = map(json.loads, (run / "attempts" / "0001" / "records.jsonl").read_text().splitlines())
    assert (record["split"], record["rows"]) == ("files", 3_100)
    assert record["auc"] > 0.8
    # known.csv has 100 rows of all; sums over the files are those of the whole.
    assert [(Path(one["file"]).name, one["rows"]) for one in files] == [("known.csv", 100), ("past.csv", 3_000)]
    for metric in ("loss", "accuracy", "label_mean"):
        assert sum(one[metric] * one["rows"] for one in files) == pytest.approx(record[metric] * 3_100), metric
    for one in files:
        lines = (shop / Path(one["file"]).name).read_text().splitlines()[1:]
        assert one["label_mean"] == pytest.approx(sum(line[0] == "1" for line in lines) / len(lines))


def test_rows_of_a_split_are_scored_too(shop: Path) -> None:
    """The test rows of past.csv, as stored: their labels are those of the rows whose hash says so."""
    dlrmx(shop, "evaluate", "shop-1", "--predict", "test.parquet")
    table = parquet.read_table(shop / "test.parquet")
    lines = (shop / "past.csv").read_text().splitlines()[1:]
    share = [mix((row + 0x5D588B656C078965) & MASK) / 2**64 for row in range(len(lines))]
    split = yaml.safe_load((shop / "shop.yaml").read_text())["data"].get("split", {})
    validation, test = split.get("validation", 0.05), split.get("test", 0.05)
    wanted = [line for line, at in zip(lines, share, strict=True) if validation <= at < validation + test]
    assert table.column("label").to_pylist() == [int(line[0]) for line in wanted]
    for line, score in zip(wanted, table.column("score").to_pylist(), strict=True):
        assert (score > 0.5) == (line[2] == "a")
