"""data prepare and show."""

import json
from pathlib import Path

import yaml

from scripted import Dlrmx

FULL = {
    "data": {"kind": "tabular", "files": ["a.csv"], "label": {"column": "y"}},
    "features": {"item": {"ids": "vocabulary"}},
    "tables": {"item": {"rows": 7, "dim": 4}},
    "model": {"kind": "dlrm", "bottom": [4], "top": [1]},
}


def test_a_table_too_small_for_its_vocabulary_is_told(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    """Five rows are left for values, of nine: each seen as often as the others."""
    rows = [f"{n % 2},item{n % 9}" for n in range(900)]
    (tmp_path / "a.csv").write_text("\n".join(["y,item", *rows]) + "\n")
    raw = yaml.safe_load(recipe_file.read_text())
    recipe_file.write_text(json.dumps({**raw, **FULL, "dense": {}}))
    note = "item: table item is full: 4 values of its vocabulary have no row (400 look-ups"
    checked = dlrmx("check", "--data", recipe_file).stdout
    assert f"note    {note}" in checked
    shown = dlrmx("data", "show", recipe_file).stdout
    assert f"note  {note}" in " ".join(shown.split()).replace("note ", "note  ")
    assert "optimum NE" not in shown
    assert "data    " in checked
    assert "label mean 0.5" in checked


def test_the_way_out_prepares_the_data_that_were_asked_for(dlrmx: Dlrmx, recipe_file: Path) -> None:
    done = dlrmx("data", "show", recipe_file, "-s", "data.split={test: 0.2}", "--cluster", "local")
    assert f"dlrmx data prepare {recipe_file} -s 'data.split={{test: 0.2}}' --cluster local" in done.stderr


def test_data_that_are_not_prepared_are_named(dlrmx: Dlrmx, recipe_file: Path) -> None:
    done = dlrmx("data", "show", recipe_file)
    assert done.exit_code == 2
    assert "not prepared yet" in done.stderr
    assert f"dlrmx data prepare {recipe_file}" in done.stderr


def test_a_swapped_or_damaged_dataset_is_refused_by_name(dlrmx: Dlrmx, recipe_file: Path) -> None:
    """Every verb that reads prepared data says which folder is wrong, and why."""
    first = Path(dlrmx("data", "prepare", recipe_file).stdout.strip())
    second = Path(dlrmx("data", "prepare", recipe_file, "-s", "seed=5").stdout.strip())
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    for words in (["data", "show"], ["data", "prepare"], ["check", "--data"], ["plan"]):
        done = dlrmx(*words, recipe_file)
        assert done.exit_code == 2, words
        assert f"{first}: holds the data of fingerprint {second.name}" in done.stderr, words
    first.rename(second)
    aside.rename(first)
    manifest = first / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"read": 2000', '"read": 2001', 1))
    assert "edited" in dlrmx("data", "show", recipe_file).stderr
    manifest.write_text(text[:100])
    assert "not a manifest" in dlrmx("data", "show", recipe_file).stderr
    manifest.unlink()
    done = dlrmx("data", "show", recipe_file)
    assert done.exit_code == 2
    assert f"{first}: no prepared data: it has no manifest.json" in done.stderr


def test_a_damaged_vocabulary_is_named(dlrmx: Dlrmx, tmp_path: Path) -> None:
    training = {
        "optimizer": {"dense": {"kind": "sgd", "lr": 0.1}, "sparse": {"kind": "sgd", "lr": 0.1}},
        "train": {"batch": 2, "stop": {"epochs": 1}, "evaluate": {"at_end": None}},
    }
    (tmp_path / "full.yaml").write_text(yaml.safe_dump({"dlrmx": 1, **FULL, **training}))
    (tmp_path / "a.csv").write_text("y,item\n0,a\n1,b\n")
    prepared = dlrmx("data", "prepare", tmp_path / "full.yaml")
    assert prepared.exit_code == 0, prepared.output
    kept = Path(prepared.stdout.strip()) / "vocabulary-0.parquet"
    kept.write_bytes(kept.read_bytes()[::-1])  # of the same size
    shown = dlrmx("data", "show", tmp_path / "full.yaml")
    assert (shown.exit_code, f"{kept}: its content is not what was written" in shown.stderr) == (2, True), shown.output
