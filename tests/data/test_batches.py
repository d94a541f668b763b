"""Batches hold just the rows asked for, in order, in the types that the worker expects."""

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from data_recipes import tabular
from dlrmx.data import batches
from dlrmx.data.batches import Batch, Split
from dlrmx.data.manifest import MANIFEST, Manifest, read_manifest
from dlrmx.data.order import shuffled_rows
from dlrmx.data.prepare import prepare
from dlrmx.errors import InputError

ROWS = 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row n has dense n, one-hot features of n, and n % 4 tags (n, n + 1, ...) with weights of the same numbers."""
    root = tmp_path_factory.mktemp("data")
    lines = ["y,n,tags"]
    lines += [f"{n % 2},{n},{'|'.join(str(n + k) for k in range(n % 4))}" for n in range(ROWS)]
    (root / "a.csv").write_text("\n".join(lines))
    features = {
        "first": {"column": "n", "ids": "vocabulary"},
        "tags": {"separator": "|", "weights": "tags", "missing": "drop"},
        "last": {"column": "n", "table": "first", "ids": "vocabulary"},
    }
    data = {"split": {"validation": 0.1, "test": 0.1}}
    recipe = tabular([root / "a.csv"], features, {"first": 5000, "tags": 5000}, dense={"n": {}}, data=data)
    return prepare(recipe, root)


def check(batch: Batch, numbers: list[int]) -> None:
    """The batch holds the rows of these numbers."""
    assert batch.labels.tolist() == [n % 2 for n in numbers]
    assert batch.dense.tolist() == [[n] for n in numbers]
    assert batch.bags["tags"].lengths.tolist() == [n % 4 for n in numbers]
    weights = batch.bags["tags"].weights
    assert weights is not None
    assert weights.tolist() == [n + k for n in numbers for k in range(n % 4)]
    assert len(batch.bags["tags"].ids) == len(weights)


def test_rows_are_taken_in_the_order_asked_for(folder: Path) -> None:
    split = Split(folder, "train")
    stored = split.take(np.arange(split.rows)).dense[:, 0].astype(int).tolist()
    rows = np.array([split.rows - 1, 0, 5, 5, 17])
    check(split.take(rows), [stored[row] for row in rows])
    check(split.take(rows[:1]), [stored[rows[0]]])


def test_shapes_and_types(folder: Path) -> None:
    batch = Split(folder, "train").take(np.array([3, 1, 2]))
    assert list(batch.bags) == ["first", "tags", "last"]
    assert {batch.labels.dtype, batch.dense.dtype} == {np.dtype(np.float32)}
    for bags in batch.bags.values():
        assert (bags.ids.dtype, bags.lengths.dtype) == (np.dtype(np.int32), np.dtype(np.int32))
        assert bags.ids.flags.c_contiguous
    assert batch.bags["first"].lengths.tolist() == [1, 1, 1]
    assert batch.bags["first"].weights is None
    assert batch.bags["first"].ids.tolist() == batch.bags["last"].ids.tolist()


def test_an_empty_batch_has_every_feature(folder: Path) -> None:
    batch = Split(folder, "train").empty()
    assert batch.labels.shape == (0,)
    assert batch.dense.shape == (0, 1)
    assert list(batch.bags) == ["first", "tags", "last"]
    assert {(bags.ids.shape, bags.lengths.shape) for bags in batch.bags.values()} == {((0,), (0,))}


@pytest.mark.parametrize("beyond", [0, -1])
def test_a_row_before_the_first_or_after_the_last_is_an_error(folder: Path, beyond: int) -> None:
    split = Split(folder, "train")
    with pytest.raises(IndexError):
        split.take(np.array([3, beyond if beyond < 0 else split.rows]))


def test_an_epoch_and_an_evaluation_meet_every_row_once(folder: Path) -> None:
    train = Split(folder, "train")
    seen: list[int] = []
    for start in range(0, train.rows, 64):
        stop = min(start + 64, train.rows)
        rows = shuffled_rows(train.rows, seed=1, epoch=0, start=start, stop=stop)
        seen += train.take(rows).dense[:, 0].astype(int).tolist()
    for name in ("validation", "test"):
        split = Split(folder, name)
        seen += split.take(np.arange(split.rows)).dense[:, 0].astype(int).tolist()
    assert sorted(seen) == list(range(ROWS))


def test_a_split_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,tags\n1,a|b\n")
    folder = prepare(tabular([tmp_path / "a.csv"], {"tags": {"separator": "|"}}, {"tags": 9}), tmp_path)
    split = Split(folder, "validation")
    assert split.rows == 0
    assert split.empty().dense.shape == (0, 0)


def test_ids_of_large_tables_are_kept_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,item\n" + "".join(f"1,{n}\n" for n in range(50)))
    folder = prepare(tabular([tmp_path / "a.csv"], {"item": {}}, {"item": 2**39}), tmp_path)
    ids = Split(folder, "train").take(np.arange(50)).bags["item"].ids
    assert ids.dtype == np.int64
    assert ids.max() > 2**32


def test_data_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,item\n1,a\n")
    folder = prepare(tabular([tmp_path / "a.csv"], {"item": {}}, {"item": 9}), tmp_path)
    other = Manifest(**{**vars(read_manifest(folder)), "order": "window-v1"})
    (folder / MANIFEST).write_text(other.to_json())
    assert json.loads(other.to_json())["order"] == "window-v1"
    with pytest.raises(InputError, match="made with window-v1"):
        Split(folder, "train")


@pytest.mark.parametrize("wrong", [-1, 5000, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize(("file", "feature"), [("train.one_hot.ids", "last"), ("train.bag-000.ids", "tags")])
def test_an_id_outside_of_its_table_is_refused_by_name(
    folder: Path, tmp_path: Path, wrong: int, file: str, feature: str
) -> None:
    damaged = shutil.copytree(folder, tmp_path / "copy")
    ids = np.fromfile(damaged / file, dtype=np.int32)
    ids[7] = wrong  # of the one-hot ones: the second feature's, in the fourth row
    ids.tofile(damaged / file)
    split = Split(damaged, "train")
    with pytest.raises(
        InputError, match=rf"feature {feature}: id {wrong} is outside of its table's 5000 rows \(1 such"
    ):
        split.take(np.arange(split.rows))


def test_ids_come_from_a_split_that_has_looked_at_them() -> None:
    """Behind it an id beyond its table may be another table's row. `measure` draws its own."""
    package = Path(batches.__file__).parent.parent
    makers = set()
    for path in package.rglob("*.py"):
        if batches.__name__ not in path.read_text():
            continue
        tree = list(ast.walk(ast.parse(path.read_text())))
        names = [node.names for node in tree if isinstance(node, ast.ImportFrom) and node.module == batches.__name__]
        imported = {alias.name for aliases in names for alias in aliases}
        called = {node.func.id for node in tree if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        if imported & called & {"Batch", "Bags"}:
            makers.add(str(path.relative_to(package)))
    assert makers == {"train/measure.py"}


def test_the_first_and_last_row_of_a_table_are_in_it(folder: Path, tmp_path: Path) -> None:
    edge = shutil.copytree(folder, tmp_path / "copy")
    for file in ("train.one_hot.ids", "train.bag-000.ids"):
        ids = np.fromfile(edge / file, dtype=np.int32)
        ids[:2] = 0, 4999
        ids.tofile(edge / file)
    batch = Split(edge, "train").take(np.arange(5))
    assert (batch.bags["first"].ids[0], batch.bags["last"].ids[0]) == (0, 4999)


def test_neighbouring_rows_are_those_that_take_gives(folder: Path) -> None:
    split = Split(folder, "train")
    for first, last in ((0, 0), (0, 7), (13, 700), (0, split.rows)):
        taken, between = split.take(np.arange(first, last)), split.between(first, last)
        assert taken.labels.tolist() == between.labels.tolist()
        assert taken.dense.tolist() == between.dense.tolist()
        for name, bags in taken.bags.items():
            same = between.bags[name]
            assert (bags.ids.tolist(), bags.lengths.tolist()) == (same.ids.tolist(), same.lengths.tolist())
            assert (bags.weights is None) == (same.weights is None)
            assert bags.weights is None or (bags.weights == same.weights).all()


@pytest.mark.parametrize("wrong", [-1, 2**40, 0])
def test_bags_outside_of_their_ids_are_refused(folder: Path, tmp_path: Path, wrong: int) -> None:
    damaged = shutil.copytree(folder, tmp_path / "copy")
    offsets = np.fromfile(damaged / "train.bag-000.offsets.i64", dtype=np.int64)
    offsets[20] = wrong
    offsets.tofile(damaged / "train.bag-000.offsets.i64")
    split = Split(damaged, "train")
    reads: list[Callable[[], Batch]] = [
        lambda: split.take(np.arange(15, 25)),
        lambda: split.between(15, 25),
        lambda: split.between(15, 20),
    ]
    for read in reads:
        with pytest.raises(InputError, match=r"a bag of a feature is not within its [\d,]+ ids"):
            read()


def test_neighbouring_rows_are_not_copied(folder: Path) -> None:
    split = Split(folder, "train")
    one, other = split.between(0, 20), split.between(10, 30)
    for first, second in ((one.labels, other.labels), (one.dense, other.dense)):
        assert np.shares_memory(first[10:], second[:10])
    assert not np.shares_memory(split.take(np.arange(20)).labels, one.labels)


@pytest.mark.parametrize("expand", [1, 3])
def test_batches_that_are_taken_at_once_are_those_taken_alone(expand: int, folder: Path, tmp_path: Path) -> None:
    made = folder
    if expand > 1:
        (tmp_path / "a.csv").write_text("y,n\n" + "".join(f"{n % 2},{n}\n" for n in range(ROWS)))
        features = {"first": {"column": "n", "expand": expand}, "last": {"column": "n", "table": "first"}}
        made = prepare(tabular([tmp_path / "a.csv"], features, {"first": 5000}, dense={"n": {}}), tmp_path)
    split = Split(made, "train")
    rows = np.array([7, 3, 3, 100, 21, 0, 5])
    cuts = [(0, 3), (3, 3), (3, 4), (4, 7)]
    parts = list(split.take_divided(rows, [last - first for first, last in cuts]))
    assert len(parts) == len(cuts)
    for part, (first, last) in zip(parts, cuts, strict=True):
        alone = split.take(rows[first:last])
        assert np.array_equal(part.labels, alone.labels)
        assert np.array_equal(part.dense, alone.dense)
        assert list(part.bags) == list(alone.bags)
        for name, bags in alone.bags.items():
            assert part.bags[name].ids.tolist() == bags.ids.tolist()
            assert part.bags[name].lengths.tolist() == bags.lengths.tolist()
            assert _listed(part.bags[name].weights) == _listed(bags.weights)
    assert parts[0].dense.base is parts[3].dense.base is not None


def _listed(weights: NDArray[np.float32] | None) -> list[float] | None:
    return None if weights is None else weights.tolist()
