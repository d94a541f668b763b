"""The manifest round-trips, and damage of any kind is refused by name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from data_recipes import tabular
from dlrmx.data.manifest import MANIFEST, Manifest, read_manifest, training_rows, verify
from dlrmx.data.prepare import prepare
from dlrmx.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("y,item,tags\n1,a,b|c\n0,c,\n")
    features = {"item": {}, "tags": {"separator": "|"}}
    return prepare(tabular([tmp_path / "a.csv"], features, {"item": 9, "tags": 9}, dense={"y": {}}), tmp_path)


def test_it_round_trips(folder: Path) -> None:
    manifest = verify(folder)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert {path.name for path in folder.iterdir()} == {*manifest.files, MANIFEST}
    assert (manifest.order, manifest.permutation) == ("strata-v1", "feistel-v1")
    assert (manifest.id_hash, manifest.split_hash) == ("text64-v1", "hash-split-v1")
    assert manifest.fingerprint == folder.name


def damaged(folder: Path, harm: Callable[[Path], object], name: str, *, check: Callable[[Path], object]) -> str:
    harm(folder / name)
    with pytest.raises(InputError) as caught:
        check(folder)
    assert f"Remove {folder} and prepare again." in str(caught.value)
    return str(caught.value)


def test_a_missing_file(folder: Path) -> None:
    error = damaged(folder, Path.unlink, "train.labels.f32", check=read_manifest)
    assert f"{folder}/train.labels.f32: missing" in error


def test_every_short_or_long_file_is_named(folder: Path) -> None:
    (folder / "train.one_hot.ids").write_bytes(b"")
    error = damaged(folder, lambda path: path.write_bytes(bytes(9)), "train.labels.f32", check=read_manifest)
    assert "train.labels.f32: 9 bytes, written were 8" in error
    assert "train.one_hot.ids: 0 bytes, written were 8" in error


def test_a_flipped_bit(folder: Path) -> None:
    def flip(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[2] ^= 1
        path.write_bytes(raw)

    error = damaged(folder, flip, "train.dense.f32", check=verify)
    assert f"{folder}/train.dense.f32: its content is not what was written" in error
    read_manifest(folder)


def test_no_manifest(folder: Path) -> None:
    assert "no prepared data" in damaged(folder, Path.unlink, MANIFEST, check=read_manifest)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 99}', '{"version": 1}', "\x00", "[" * 100_000])
def test_another_file_in_its_place(folder: Path, text: str) -> None:
    error = damaged(folder, lambda path: path.write_text(text), MANIFEST, check=read_manifest)
    assert "not a manifest of prepared data" in error


def test_an_edited_manifest(folder: Path) -> None:
    def edit(path: Path) -> None:
        raw = json.loads(path.read_text())
        raw["splits"]["train"]["rows"] = 1
        path.write_text(json.dumps(raw))

    assert "edited" in damaged(folder, edit, MANIFEST, check=read_manifest)


def test_another_order_is_other_training_rows(folder: Path) -> None:
    manifest = read_manifest(folder)
    before = replace(manifest, order="window-v1")
    assert training_rows(manifest) == training_rows(replace(manifest, sources=[]))
    assert training_rows(before) != training_rows(manifest)
