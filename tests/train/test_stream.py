"""The stream of training rows: every slice by its position, in either order."""

from pathlib import Path

import numpy as np
import pytest

from data_recipes import tabular
from dlrmx.data.batches import Split
from dlrmx.data.prepare import prepare
from dlrmx.recipe.schema import Recipe
from dlrmx.train.ahead import Ahead
from dlrmx.train.stream import Position, Stream

ROWS, BATCH = 150, 64


def make_recipe(root: Path, order: str, tail: str = "keep") -> Recipe:
    """Rows whose dense column is their number; two epochs in batches of 64."""
    (root / "a.csv").write_text("y,n\n" + "".join(f"{n % 2},{n}\n" for n in range(ROWS)))
    train = {"batch": BATCH, "stop": {"epochs": 2}}
    data = {"order": order, "tail": tail}
    return tabular([root / "a.csv"], {"n": {}}, {"n": 500}, dense={"n": {}}, data=data, train=train)


def numbers(stream: Stream, position: Position) -> list[list[int]]:
    return [rows.batch.dense[:, 0].astype(int).tolist() for rows in stream.slices(position)]


@pytest.mark.parametrize("order", ["shuffled", "as_stored"])
@pytest.mark.parametrize("tail", ["keep", "drop"])
@pytest.mark.parametrize("together", [1, 3 * 128, 16_384])
def test_slices_are_those_of_their_positions(
    tmp_path: Path, order: str, tail: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlrmx.train.stream.TOGETHER_VALUES", together)
    recipe = make_recipe(tmp_path, order, tail)
    split = Split(prepare(recipe, tmp_path), "train")
    stream = Stream(split, recipe, order_seed=3, rank=0, world=1)
    positions, expected = [Position()], []
    while positions[-1].step < stream.total_steps:
        expected.append(stream.slice_at(positions[-1]).batch.dense[:, 0].astype(int).tolist())
        positions.append(stream.after(positions[-1]))
    sizes = [64, 64, 22] if tail == "keep" else [64, 64]
    assert [len(rows) for rows in expected] == sizes * 2
    for step, position in enumerate(positions):
        assert numbers(stream, position) == expected[step:]


def test_as_stored_is_the_order_of_the_file(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, "as_stored")
    split = Split(prepare(recipe, tmp_path), "train")
    dealt = [numbers(Stream(split, recipe, order_seed=3, rank=rank, world=3), Position()) for rank in range(3)]
    joined: list[list[int]] = [sum(parts, []) for parts in zip(*dealt, strict=True)]
    assert sum(joined, []) == [*range(ROWS), *range(ROWS)]


def test_a_damaged_id_comes_out_of_the_thread_by_name(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, "as_stored")
    folder = prepare(recipe, tmp_path)
    ids = np.fromfile(folder / "train.one_hot.ids", dtype=np.int32)
    ids[100] = 500
    ids.tofile(folder / "train.one_hot.ids")
    stream = Stream(Split(folder, "train"), recipe, order_seed=3, rank=0, world=1)
    with Ahead(stream.slices(Position())) as slices:
        next(slices)
        with pytest.raises(Exception, match=r"feature n: id 500 is outside of its table's 500 rows \(1 such"):
            next(slices)
