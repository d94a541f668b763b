"""Piece by piece: the same bytes whole, in files, cut anywhere, killed and restarted, added later."""

import errno
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from criteo_files import criteo, prepare_in_pieces, random_rows, row, write
from data_recipes import tabular, whole
from dlrmx.data import criteo as module
from dlrmx.data import criteo_lines, pool
from dlrmx.data.manifest import MANIFEST, Manifest, read_manifest, verify
from dlrmx.data.prepare import prepare, prepared_path
from dlrmx.data.source import Piece
from dlrmx.errors import DlrmxError, InputError
from dlrmx.recipe.schema import Recipe

SPLIT = {"validation": 0.1, "test": 0.2}
FEATURES: dict[str, Any] = {
    "C1": {},
    "C2": {"ids": "vocabulary", "min_count": 2},
    "C3": {"ids": "modulo"},
    "drop": {"column": "C4", "missing": "drop", "table": "C4"},
}
LINES = [line if n % 97 else row("2") for n, line in enumerate(random_rows(1200), start=1)]


def made(*files: Path, **more: Any) -> Recipe:
    return criteo(list(files), **{"features": FEATURES, "split": SPLIT, "bad_rows": "skip", **more})


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST}


def facts(folder: Path) -> Manifest:
    """What the manifest says of the data; not which files it is of, nor where in them its first bad rows are."""
    found = read_manifest(folder)
    rows = {**vars(found.rows), "first": len(found.rows.first)}
    return Manifest(**{**vars(found), "fingerprint": "", "sources": [], "by_file": {}, "transform": "", "rows": rows})


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return prepare(made(write(tmp_path / "whole.txt", *LINES)), tmp_path)


def in_files(tmp_path: Path) -> list[Path]:
    cuts = [0, 500, 501, 1200]
    bounds = zip(cuts, cuts[1:], strict=False)
    return [write(tmp_path / f"day_{n}", *LINES[a:b]) for n, (a, b) in enumerate(bounds)]


@pytest.mark.parametrize("piece_bytes", [9000, 40_000])
def test_a_file_in_pieces(piece_bytes: int, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", piece_bytes)
    folder = prepare(made(tmp_path / "whole.txt"), tmp_path / "root")
    assert content(folder) == content(reference)
    # Line numbers and all.
    assert read_manifest(folder) == read_manifest(reference)
    verify(folder)


def test_files_one_after_the_other(reference: Path, tmp_path: Path) -> None:
    folder = prepare(made(*in_files(tmp_path)), tmp_path / "root")
    assert content(folder) == content(reference)
    assert facts(folder) == facts(reference)
    manifest = read_manifest(folder)
    assert [path.rpartition("/")[2] for path in manifest.by_file] == ["day_0", "day_1", "day_2"]
    assert [sum(split) for split in zip(*manifest.by_file.values(), strict=True)] == [
        split.rows for split in manifest.splits.values()
    ]
    bad = [sum(n % 97 == 0 for n in range(a + 1, b + 1)) for a, b in ((0, 500), (500, 501), (501, 1200))]
    assert [sum(rows) for rows in manifest.by_file.values()] == [500 - bad[0], 1 - bad[1], 699 - bad[2]]


def test_workers_do_the_same(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "INLINE_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(module, "PIECE_BYTES", 40_000)
    seen: list[tuple[str, int, int | None]] = []
    folder = prepare(made(tmp_path / "whole.txt"), tmp_path / "root", progress=lambda *step: seen.append(step))
    assert content(folder) == content(reference)
    assert read_manifest(folder) == read_manifest(reference)
    assert {step[0] for step in seen} == {"survey", "count", "prepare"}
    assert ("count", 1200, 1200) in seen


def test_what_a_worker_finds_bad_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "INLINE_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    files = in_files(tmp_path)
    with pytest.raises(InputError, match=r"day_0:97: label: the label is '2'"):
        prepare(made(*files[:2], bad_rows="fail"), tmp_path)
    assert not list((tmp_path / "prepared").iterdir())


@pytest.mark.parametrize("split", [SPLIT, {**SPLIT, "on": "C5"}])
def test_files_added_later(split: dict[str, Any], tmp_path: Path) -> None:
    features = {name: {**feature, "ids": "hash"} for name, feature in FEATURES.items() if name != "C2"}
    files = in_files(tmp_path)
    prepare(made(*files[:2], features=features, split=split), tmp_path / "a")
    asked: list[int] = []
    later = prepare(
        made(*files, features=features, split=split),
        tmp_path / "a",
        progress=lambda what, done, total: asked.append(done),
    )
    assert max(asked) < 1200 - 501  # only the new rows, without the bad ones
    once = prepare(made(*files, features=features, split=split), tmp_path / "b")
    assert content(later) == content(once)
    assert read_manifest(later) == read_manifest(once)


BY_PLACE = {
    "fraction": {"by": "fraction", "validation": 0.25, "test": 0.5},
    "files": {"by": "files", "validation": ["day_1", "day_2"], "test": ["day_2"], "first": "test"},
}


@pytest.mark.parametrize("by", BY_PLACE)
def test_rows_split_by_place(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of each split, held to the lines themselves; however the files are cut, and added later or not."""
    files = in_files(tmp_path)
    features: dict[str, Any] = {"C1": {}}
    rows = [line.split(b"\t") for line in LINES]
    wanted = {
        "fraction": {"train": rows[:300], "validation": rows[300:600], "test": rows[600:]},
        "files": {"train": rows[:500], "validation": [*rows[500:501], *rows[851:]], "test": rows[501:851]},
    }[by]
    recipe = made(*files, features=features, split=BY_PLACE[by])
    once = prepare(recipe, tmp_path / "b")
    for split, lines in wanted.items():
        good = [line for line in lines if line[0] != b"2"]
        assert whole(once, split).labels.tolist() == [float(line[0]) for line in good], split
        dense = [math.log1p(max(int(line[3] or 0), 0)) for line in good]
        assert whole(once, split).dense[:, 2] == pytest.approx(dense), split
    monkeypatch.setattr(module, "PIECE_BYTES", 9000)
    prepare(made(*files[:2], features=features, split={"by": "fraction"}), tmp_path / "a")
    later = prepare(recipe, tmp_path / "a")
    assert content(later) == content(once)
    assert read_manifest(later) == read_manifest(once)


def test_files_added_later_keep_a_split_by_files(tmp_path: Path) -> None:
    files = in_files(tmp_path)
    split = {"by": "files", "validation": ["day_1"]}
    features: dict[str, Any] = {"C1": {}}
    prepare(made(*files[:2], features=features, split=split), tmp_path / "a")
    asked: list[int] = []
    later = prepare(
        made(*files, features=features, split=split),
        tmp_path / "a",
        progress=lambda what, done, total: asked.append(done),
    )
    assert max(asked) <= 1200 - 501
    once = prepare(made(*files, features=features, split=split), tmp_path / "b")
    assert content(later) == content(once)
    assert read_manifest(later).splits["validation"].rows == 1


def test_a_vocabulary_of_more_files_is_another_one(tmp_path: Path) -> None:
    files = in_files(tmp_path)
    prepare(made(*files[:2]), tmp_path / "a")
    later, once = prepare(made(*files), tmp_path / "a"), prepare(made(*files), tmp_path / "b")
    assert content(later) == content(once)
    assert read_manifest(later) == read_manifest(once)


def test_only_what_was_made_alike_of_the_first_files_is_added_to(tmp_path: Path) -> None:
    features: dict[str, Any] = {"C1": {}}
    files = in_files(tmp_path)
    for other in (
        made(*files[2:], features=features),
        made(*files[:2], features={"C1": {"ids": "modulo"}}),
        made(*files[:2], features=features, split={"validation": 0.3, "test": 0.2}),
    ):
        prepare(other, tmp_path / "a")
    folders = [prepare(made(*files, features=features), tmp_path / root) for root in "ab"]
    assert content(folders[0]) == content(folders[1])


def test_csv_and_parquet_files_added_later(tmp_path: Path) -> None:
    lines = [f"{n % 2},v{n % 50}|w" for n in range(300)]
    for number in range(3):
        body = "\n".join(["y,item", *lines[100 * number : 100 * (number + 1)]])
        (tmp_path / f"{number}.csv").write_text(body + "\n")
    (tmp_path / "all.csv").write_text("\n".join(["y,item", *lines]) + "\n")

    def recipe(*names: str) -> Recipe:
        files = [tmp_path / f"{name}.csv" for name in names]
        return tabular(files, {"item": {"separator": "|"}}, {"item": 50}, data={"split": SPLIT})

    prepare(recipe("0", "1"), tmp_path)
    later, once = prepare(recipe("0", "1", "2"), tmp_path), prepare(recipe("all"), tmp_path)
    assert content(later) == content(once)
    assert facts(later) == facts(once)


# -------------------------------------------------------------------------------------------------------------- kills

_PREPARE = """
import sys
from pathlib import Path
from dlrmx.data import criteo, pool
from dlrmx.data.prepare import prepare
from dlrmx.recipe.schema import Recipe
criteo.PIECE_BYTES = 50_000
pool.INLINE_BYTES = int(sys.argv[3])
prepare(Recipe.model_validate_json(sys.argv[1]), Path(sys.argv[2]))
"""


def start(recipe: Recipe, root: Path, inline_bytes: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", _PREPARE, recipe.model_dump_json(), str(root), str(inline_bytes)])


def results(root: Path) -> int:
    """How many pieces' results lie in the work folder."""
    found = [path.name for path in root.glob("prepared/.work-*/*")]
    return sum(bool(re.fullmatch(r"(extent|counts|rows)-\d{5}(\.json)?", name)) for name in found)


def kill_when(process: "subprocess.Popen[bytes]", ready: Callable[[], bool]) -> bool:
    """Kill -9 once it is so; whether the process was there to be killed."""
    while process.poll() is None and not ready():
        time.sleep(0.002)
    process.kill()
    return process.wait() != 0


def reached_goal(root: Path, goal: int) -> Callable[[], bool]:
    return lambda: results(root) >= goal


def after(moment: float) -> Callable[[], bool]:
    return lambda: time.monotonic() > moment


@pytest.mark.parametrize("inline_bytes", [1 << 40, 0], ids=["here", "workers"])
def test_killed_and_restarted(inline_bytes: int, reference: Path, tmp_path: Path) -> None:
    recipe, root = made(tmp_path / "whole.txt"), tmp_path / "root"
    reached = 0
    for _ in range(2):
        goal = reached + 4
        killed = kill_when(start(recipe, root, inline_bytes), reached_goal(root, goal))
        assert killed
        assert results(root) >= reached  # nothing that was done is lost
        reached = results(root)
    assert start(recipe, root, inline_bytes).wait(60) == 0
    folder = prepared_path(recipe, root)
    assert content(folder) == content(reference)
    assert read_manifest(folder) == read_manifest(reference)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def phase(root: Path) -> str:
    """How far a preparation came: the results in its work folder, and whether it was joining them."""
    kinds = [path.name.split("-")[0] for path in root.glob("prepared/.work-*/*") if not path.name.startswith("claim-")]
    counts = [f"{kinds.count(kind)} {kind}" for kind in ("extent", "counts", "vocabularies", "rows")]
    return ", ".join([*counts, *("joining" for _ in root.glob("prepared/.partial-*"))])


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 3])
def test_killed_at_twenty_moments(files: int, reference: Path, tmp_path: Path) -> None:
    recipe, root = made(*(in_files(tmp_path) if files == 3 else [tmp_path / "whole.txt"])), tmp_path / "root"
    processes = multiprocessing.get_context("forkserver")  # processes that need not start anew
    processes.set_forkserver_preload(["criteo_files"])

    def begin() -> Any:
        process = processes.Process(target=prepare_in_pieces, args=(recipe.model_dump_json(), root, 50_000))
        process.start()
        return process

    dice, phases = random.Random(files), []
    for number in range(20):
        # Once so many results are there, of 21 in all, and a moment later: then they are joined.
        goal, delay = dice.randrange(22), dice.uniform(0, 0.05)
        process = begin()
        while process.is_alive() and results(root) < goal:
            time.sleep(0.001)
        time.sleep(delay)
        process.kill()
        process.join(60)
        phases.append(phase(root) if process.exitcode else "done before it could be killed")
        print(f"{number}: {phases[-1]}")
        process = begin()
        process.join(60)
        assert process.exitcode == 0
        assert content(prepared_path(recipe, root)) == content(reference)
        assert facts(prepared_path(recipe, root)) == facts(reference)
        shutil.rmtree(root)
    assert len(set(phases)) > 8


_PEAK = """
import sys
from pathlib import Path
from dlrmx.data.prepare import prepare
from dlrmx.recipe.schema import Recipe
prepare(Recipe.model_validate_json(sys.argv[1]), Path(sys.argv[2]))
# Not ru_maxrss: that begins with what the process that started this one held.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("ids", ["hash", "vocabulary"])
def test_memory_does_not_grow_with_the_rows(ids: str, tmp_path: Path) -> None:
    rows = b"\n".join(random_rows(2000)) + b"\n"
    peaks_kib = []
    for times in (40, 120):
        path = tmp_path / f"{times}"
        path.write_bytes(rows * times)
        recipe = criteo([path], features={"C1": {"ids": ids}, "C2": {"ids": ids}}).model_dump_json()
        command = [sys.executable, "-c", _PEAK, recipe, str(tmp_path / "root")]
        peaks_kib.append(int(subprocess.run(command, check=True, capture_output=True).stdout))
    # 160,000 rows more, 41 MB of text: held in memory they would be seen.
    assert peaks_kib[1] - peaks_kib[0] < 20_000


def test_a_result_that_was_damaged_is_made_again(reference: Path, tmp_path: Path) -> None:
    recipe, root = made(tmp_path / "whole.txt"), tmp_path / "root"
    assert kill_when(start(recipe, root, 1 << 40), lambda: bool(list(root.glob("prepared/.work-*/rows-00001"))))
    (labels,) = root.glob("prepared/.work-*/rows-00000/train.labels.f32")
    raw = bytearray(labels.read_bytes())
    raw[3] ^= 1
    labels.write_bytes(raw)
    assert start(recipe, root, 1 << 40).wait(60) == 0
    assert content(prepared_path(recipe, root)) == content(reference)


# ------------------------------------------------------------------------------------- full disks, unreadable files


def test_a_disk_that_is_full_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result is on the disk before it counts; what cannot be is not there, and the next try goes on."""
    monkeypatch.setattr(module, "PIECE_BYTES", 40_000)
    recipe = made(write(tmp_path / "a", *LINES[:400]))
    whole = prepare(recipe, tmp_path / "whole")
    fsync, calls, fails_at = os.fsync, 0, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    prepare(recipe, tmp_path / "counted")
    for number in range(1, calls, 7):
        root = tmp_path / f"{number}"
        calls, fails_at = 0, number
        with pytest.raises(DlrmxError, match="cannot write prepared data below .*: No space left on device"):
            prepare(recipe, root)
        assert not prepared_path(recipe, root).exists()
        assert not list(root.glob("prepared/.partial-*"))
        assert content(prepare(recipe, root)) == content(whole)
        assert [path.name for path in (root / "prepared").iterdir()] == [whole.name]


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, root = in_files(tmp_path), tmp_path / "root"
    read = criteo_lines._read
    broken = True

    def failing(file: Any, piece: Piece, start: int) -> Iterator[Any]:
        blocks = read(file, piece, start)
        if piece.path == files[2]:
            yield next(blocks)
            if broken:
                raise OSError(errno.EIO, "Input/output error")
        else:
            yield from blocks

    monkeypatch.setattr(criteo_lines, "_read", failing)
    for _ in range(2):
        with pytest.raises(InputError, match="day_2: cannot be read: Input/output error"):
            prepare(made(*files), root)
    # What was made of the other files stays.
    assert {path.name for path in root.glob("prepared/.work-*/*")} == {
        *("extent-00000.json", "extent-00001.json"),
        *(f"claim-extent-0000{number}" for number in range(3)),
    }
    broken = False
    assert content(prepare(made(*files), root)) == content(prepare(made(*files), tmp_path / "other"))


def test_the_systems_own_words_for_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    path.symlink_to("/proc/self/mem")  # its first page cannot be read
    with pytest.raises(InputError, match="day_0: cannot be read: Input/output error"):
        prepare(made(path), tmp_path)


# ------------------------------------------------------------------------------------------------------------ workers


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    recipe = made(write(tmp_path / "a", *random_rows(5000)))
    process = start(recipe, tmp_path / "root", 0)
    assert kill_when(process, lambda: results(tmp_path / "root") >= 2)
    deadline = time.monotonic() + 20
    while workers := [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_worker(pid, tmp_path)]:
        assert time.monotonic() < deadline, workers
        time.sleep(0.05)


def _is_worker(pid: str, root: Path) -> bool:
    """Whether it is a worker that has a file below `root` open, or works there."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        names = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return b"dlrmx.data.worker" in command and any(str(root) in name for name in names)


UNREADABLE = json.dumps({"problems": [{"what": "day_2: cannot be read"}], "unreadable": True})


@pytest.mark.parametrize(
    ("worker", "error"),
    [("exit 1", "a process that prepares data ended with code 1"), (f"echo '{UNREADABLE}'", "day_2: cannot be read")],
)
def test_a_worker_that_fails_is_told_and_what_others_did_stays(
    worker: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, root = made(*in_files(tmp_path)), tmp_path / "root"

    def stop(what: str, done: int, total: int | None) -> None:
        if what == "prepare" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, root, progress=stop)
    done = results(root)
    monkeypatch.setattr(pool, "INLINE_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    (tmp_path / "worker").write_text(f"#!/bin/sh\nread order\nread task\n{worker}\n")
    (tmp_path / "worker").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "worker"))
    with pytest.raises(InputError, match=error):
        prepare(recipe, root)
    assert 0 < done == results(root)


def test_one_row_in_each_of_many_files(tmp_path: Path) -> None:
    files = [write(tmp_path / f"day_{n}", row(str(n % 2))) for n in range(5)]
    assert whole(prepare(criteo(files), tmp_path)).labels.tolist() == [0, 1, 0, 1, 0]
