"""Preparing: once, aside, by several processes at once, and never over damaged data."""

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from data_recipes import recipe, tabular
from dlrmx.data import prepare as module
from dlrmx.data.manifest import MANIFEST, Manifest, verify
from dlrmx.data.prepare import data_fingerprint, prepare, prepared_path
from dlrmx.errors import DlrmxError, InputError
from dlrmx.recipe.schema import Recipe


def synthetic(*, seed: int = 0, features: dict[str, Any] | None = None, item_rows: int = 9, **data: Any) -> Recipe:
    rows = {"item": item_rows, "user": 9}
    return recipe({"kind": "synthetic", "rows": 500, **data}, features or {"item": {}, "user": {}}, rows, seed=seed)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_prepared_is_not_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare(synthetic(), tmp_path)
    assert folder == prepared_path(synthetic(), tmp_path) == tmp_path / "prepared" / data_fingerprint(synthetic())
    monkeypatch.setattr(module, "_prepare", None)
    assert prepare(synthetic(), tmp_path) == folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_same_recipe_gives_the_same_bytes(tmp_path: Path) -> None:
    assert contents(prepare(synthetic(), tmp_path / "a")) == contents(prepare(synthetic(), tmp_path / "b"))


def test_the_fingerprint_is_of_what_decides_the_content() -> None:
    base = data_fingerprint(synthetic())
    same = [synthetic(order="as_stored"), synthetic(tail="drop")]
    assert {data_fingerprint(recipe) for recipe in same} == {base}
    others = [
        synthetic(seed=1),
        synthetic(zipf=1.1),
        synthetic(item_rows=10),
        synthetic(features={"user": {}, "item": {}}),
        synthetic(features={"item": {"pooling": "mean"}, "user": {}}),
    ]
    assert len({base, *(data_fingerprint(recipe) for recipe in others)}) == 6


def test_the_fingerprint_of_files_is_of_their_sizes_and_times(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def fingerprint(pattern: Path = path, **more: Any) -> str:
        return data_fingerprint(tabular([pattern], {"item": {}}, {"item": 9}, **more))

    path.write_text("y,item\n1,a\n")
    base = fingerprint()
    assert fingerprint(tmp_path / "*.csv") == base
    # Files do not depend on the seed: a change of it must move no row between the splits.
    assert fingerprint(seed=1) == base
    os.utime(path, ns=(1, 1))
    later = fingerprint()
    path.write_text("y,item\n1,a\n0,b\n")
    os.utime(path, ns=(1, 1))
    assert len({base, later, fingerprint()}) == 3


def test_damaged_data_is_refused_not_trained_on_nor_replaced(tmp_path: Path) -> None:
    folder = prepare(synthetic(), tmp_path)
    (folder / "train.labels.f32").write_bytes(b"")
    with pytest.raises(InputError, match=r"train\.labels\.f32: 0 bytes"):
        prepare(synthetic(), tmp_path)


def test_data_under_another_name_is_refused(tmp_path: Path) -> None:
    prepare(synthetic(), tmp_path).rename(prepared_path(synthetic(seed=1), tmp_path))
    with pytest.raises(InputError, match="holds the data of fingerprint"):
        prepare(synthetic(seed=1), tmp_path)


def test_an_interrupted_preparation_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int | None) -> None:
        assert list((tmp_path / "prepared").glob(".partial-*"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(synthetic(), tmp_path, progress=interrupt)
    assert list((tmp_path / "prepared").iterdir()) == []


def test_what_a_killed_preparation_left_goes_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / "prepared" / ".partial-1-old", tmp_path / "prepared" / ".partial-2-new"
    for partial in (old, new):
        partial.mkdir(parents=True)
        (partial / "train.labels.f32").touch()
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(old / "train.labels.f32", (long_ago, long_ago))
    os.utime(old, (long_ago, long_ago))
    os.utime(new, (long_ago, long_ago))
    folder = prepare(synthetic(), tmp_path)
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, new.name}


def test_files_that_vanish_from_anothers_work_are_no_fault(tmp_path: Path) -> None:
    busy = tmp_path / "prepared" / ".work-0123456789ab"
    busy.mkdir(parents=True)
    (busy / "rows").symlink_to(busy / "gone")  # as what is there when it is listed and gone when it is looked at
    assert prepare(synthetic(), tmp_path).is_dir()
    assert busy.is_dir()


def test_a_file_that_changes_while_it_is_read_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path, root = tmp_path / "a.csv", tmp_path / "root"
    path.write_text("y,item\n1,a\n0,b\n")

    def grow(what: str, rows: int, total: int | None) -> None:
        if what == "prepare" and path.stat().st_size == 15:
            path.write_text("y,item\n1,a\n0,b\n1,c\n")

    given = tabular([path], {"item": {"ids": "vocabulary"}}, {"item": 9})
    with pytest.raises(InputError, match=r"a\.csv: changed while it was read: 19 bytes now, 15 before"):
        prepare(given, root, progress=grow)
    assert list((root / "prepared").iterdir()) == []
    assert prepare(given, root, progress=grow).is_dir()


def test_a_file_that_vanishes_while_it_is_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("y,item\n1,a\n0,b\n")
    given = tabular([path], {"item": {"ids": "vocabulary"}}, {"item": 9})

    def remove(what: str, rows: int, total: int | None) -> None:
        if what == "prepare":
            path.unlink(missing_ok=True)

    with pytest.raises(InputError, match=r"a\.csv: cannot be read: No such file"):
        prepare(given, tmp_path / "root", progress=remove)


def test_rows_that_are_all_bad_are_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,item\n7,a\n8,b\n")
    given = tabular([tmp_path / "a.csv"], {"item": {}}, {"item": 9}, data={"bad_rows": "skip"})
    with pytest.raises(InputError, match=r"no rows to train on: all 2 are bad, .*a\.csv:2: y: the label is 7"):
        prepare(given, tmp_path)


def _prepare_when_told(root: Path, start: Any, done: Any) -> None:
    def meet(what: str, rows: int, total: int | None) -> None:
        start.wait(60)

    done.put(prepare(synthetic(), root, progress=meet).name)


def test_two_processes_at_once_both_succeed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    # Both are within their preparation when either goes on.
    start, done = context.Barrier(2), context.Queue()
    workers = [context.Process(target=_prepare_when_told, args=(tmp_path, start, done)) for _ in range(2)]
    for worker in workers:
        worker.start()
    folders = {done.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    target = prepared_path(synthetic(), tmp_path)
    assert folders == {target.name}
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    verify(target)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "prepared").write_text("a file")
    with pytest.raises(DlrmxError, match="cannot write prepared data below") as caught:
        prepare(synthetic(), tmp_path)
    assert caught.value.exit_code == 1  # not the input is bad


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dlrmx.data.output.os.fsync", full)
    with pytest.raises(DlrmxError, match="No space left on device") as caught:
        prepare(synthetic(), tmp_path)
    assert caught.value.exit_code == 1
    assert list((tmp_path / "prepared").iterdir()) == []


def test_the_manifest_is_the_last_file_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    to_json = Manifest.to_json

    def spy(self: Any) -> str:
        (partial,) = (tmp_path / "prepared").glob(".partial-*")
        sizes = {path.name: path.stat().st_size for path in partial.iterdir()}
        assert {name: sizes.pop(name) for name in self.files} == {
            name: facts.bytes for name, facts in self.files.items()
        }
        seen.append([name for name in sizes if name != MANIFEST])
        return str(to_json(self))

    monkeypatch.setattr("dlrmx.data.writer.Manifest.to_json", spy)
    prepare(synthetic(), tmp_path)
    assert seen
    assert not any(seen)


def test_without_pyarrow_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("dlrmx.data.") and name != module.__name__]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.csv").write_text("y,item\n1,a\n")
    with pytest.raises(InputError, match=r"dlrmx\[data\]"):
        prepare(tabular([tmp_path / "a.csv"], {"item": {}}, {"item": 9}), tmp_path)
