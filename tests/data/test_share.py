"""Several processes prepare the same data: nothing is done twice, and the bytes are those of one."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from criteo_files import criteo, random_rows, row, write
from dlrmx.data import claims
from dlrmx.data import criteo as module
from dlrmx.data.manifest import read_manifest, verify
from dlrmx.data.prepare import prepare, prepared_path
from dlrmx.recipe.schema import Recipe

FEATURES: dict[str, Any] = {"C1": {}, "C2": {"ids": "vocabulary", "min_count": 2}, "C4": {"missing": "drop"}}
PIECE_BYTES = 9000
NODES = 3

# As the node process of a machine: what it did goes into a file; the task `hang` it begins and never ends.
_NODE = """
import sys, time
from pathlib import Path
from dlrmx.data import claims, criteo, pool
from dlrmx.data.prepare import prepare
from dlrmx.errors import InputError
from dlrmx.recipe.schema import Recipe
recipe, root, log, node, nodes, hang, piece_bytes, dead_s = sys.argv[1:]
claims._place = lambda: f"machine{node}"
claims.WAIT_S, claims.PULSE_S, claims.DEAD_S = 0.05, 0.1, float(dead_s)
criteo.PIECE_BYTES = int(piece_bytes)
run = pool.run_task
def spy(source, work, identity, task, told):
    with open(log, "a") as file:
        file.write(f"{task.name} {node}\\n")
    if task.name == hang:
        time.sleep(600)
    run(source, work, identity, task, told)
    time.sleep(0.02)
pool.run_task = spy
print("ready", flush=True)
sys.stdin.readline()
try:
    prepare(Recipe.model_validate_json(recipe), Path(root), node=int(node), nodes=int(nodes))
except InputError as error:
    print(error, flush=True)
"""


def recipe_of(*files: Path, **more: Any) -> Recipe:
    split = {"validation": 0.1, "test": 0.2}
    return criteo(list(files), **{"features": FEATURES, "split": split, "bad_rows": "skip", **more})


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Node:
    """A process that prepares data as one of NODES machines."""

    def __init__(self, recipe: Recipe, root: Path, log: Path, number: int, hang: str = "", dead_s: int = 60) -> None:
        words = [recipe.model_dump_json(), root, log, number, NODES, hang, PIECE_BYTES, dead_s]
        command = [sys.executable, "-c", _NODE, *map(str, words)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None and self._process.stdin is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        assert self._output.readline() == "ready\n"

    def begin(self) -> None:
        self._input.write("go\n")
        self._input.flush()

    def said(self) -> str:
        """What it printed, once it has ended."""
        with self._input, self._output:
            text = self._output.read()
        assert self._process.wait(60) == 0
        return text

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._input.close()
        self._output.close()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    lines = [line if n % 97 else row("2") for n, line in enumerate(random_rows(600), start=1)]
    return [write(tmp_path / f"day_{n}", *lines[150 * n : 150 * (n + 1)]) for n in range(4)]


@pytest.fixture
def reference(files: list[Path], tmp_path: Path) -> Path:
    return prepare(recipe_of(*files), tmp_path / "reference")


def tasks_done(log: Path) -> list[tuple[str, str]]:
    """(task, node) of each task that was begun."""
    return [(line.split()[0], line.split()[1]) for line in log.read_text().splitlines()]


def test_machines_divide_the_work(files: list[Path], reference: Path, tmp_path: Path) -> None:
    recipe, root, log = recipe_of(*files), tmp_path / "root", tmp_path / "log"
    nodes = [Node(recipe, root, log, number) for number in range(NODES)]
    for node in nodes:
        node.begin()
    assert [node.said() for node in nodes] == [""] * NODES
    folder = prepared_path(recipe, root)
    assert content(folder) == content(reference)
    verify(folder)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    done = tasks_done(log)
    assert max(Counter(task for task, _ in done).values()) == 1
    assert {node for _, node in done} == {"0", "1", "2"}
    kinds = Counter(task.split("-")[0] for task, _ in done)
    assert kinds["extent"] == kinds["counts"] == kinds["rows"] >= 12
    # Each began with pieces of its own.
    first_rows = {node: task for task, node in reversed(done) if task.startswith("extent")}
    assert len(set(first_rows.values())) == NODES


@pytest.mark.parametrize("task", ["counts-00000", "rows-00000"])
def test_what_a_killed_machine_had_begun_is_done_by_another(
    task: str, files: list[Path], reference: Path, tmp_path: Path
) -> None:
    recipe, root, log = recipe_of(*files), tmp_path / "root", tmp_path / "log"
    lost = Node(recipe, root, log, 0, hang=task)
    lost.begin()
    while not log.exists() or (task, "0") not in tasks_done(log):
        time.sleep(0.01)
    other = Node(recipe, root, log, 1, dead_s=1)
    other.begin()
    lost.kill()
    assert other.said() == ""
    assert content(prepared_path(recipe, root)) == content(reference)
    assert Counter(name for name, _ in tasks_done(log))[task] == 2
    assert len({name for name, _ in tasks_done(log)}) == len(tasks_done(log)) - 1


def test_bad_data_end_all_with_the_same_words(files: list[Path], tmp_path: Path) -> None:
    recipe, root, log = recipe_of(*files, bad_rows="fail"), tmp_path / "root", tmp_path / "log"
    nodes = [Node(recipe, root, log, number) for number in range(NODES)]
    for node in nodes:
        node.begin()
    said = [node.said() for node in nodes]
    assert all("label: the label is '2', not 0 or 1" in text for text in said)
    assert not list((root / "prepared").iterdir())


def test_machines_that_share_no_root_prepare_for_themselves(files: list[Path], reference: Path, tmp_path: Path) -> None:
    recipe = recipe_of(*files)
    for node in range(2):
        assert content(prepare(recipe, tmp_path / f"local{node}", node=node, nodes=2)) == content(reference)


def test_one_that_stops_leaves_its_share_to_the_others(
    files: list[Path], reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", PIECE_BYTES)
    recipe, root = recipe_of(*files), tmp_path / "root"

    def stop(what: str, done: int, total: int | None) -> None:
        if what == "prepare" and done > 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, root, progress=stop)
    monkeypatch.setattr(claims, "_place", lambda: "elsewhere")
    began, asked = time.monotonic(), list[int]()
    folder = prepare(recipe, root, progress=lambda what, done, total: asked.append(done))
    assert time.monotonic() - began < claims.DEAD_S / 2
    assert min(asked) >= 150  # what was done is not done again
    assert content(folder) == content(reference)


def test_work_that_was_left_is_of_use_whatever_was_prepared_meanwhile(files: list[Path], tmp_path: Path) -> None:
    """Pieces keep their numbers when the data of the first files comes to be there."""
    hashed: dict[str, Any] = {"C1": {}}
    recipe, root = recipe_of(*files, features=hashed), tmp_path / "root"

    def stop(what: str, done: int, total: int | None) -> None:
        if what == "prepare" and done > 450:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(recipe, root, progress=stop)
    prepare(recipe_of(*files[:2], features=hashed), root)
    folder, whole = prepare(recipe, root), prepare(recipe, tmp_path / "other")
    assert content(folder) == content(whole)
    assert read_manifest(folder).rows.read == 600
