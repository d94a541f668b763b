"""A resumed run equals an unbroken one: in every bit under one plan, within rounding under another."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlrmx.checkpoint.read import open_checkpoint
from dlrmx.checkpoint.write import Piece, save
from dlrmx.data.batches import Batch, Split
from dlrmx.data.prepare import prepare
from dlrmx.parallel.wire import Wire
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.layout import RunPaths
from dlrmx.train import persist
from dlrmx.train.build import build_parts
from dlrmx.train.schedule import rate_factor
from dlrmx.train.stream import Position, Stream
from ranks import run_ranks
from reference import Reference
from sharding_cases import KINDS, RANKS_PER_NODE, assert_near, make_plan
from training import ROWS, differing, make_recipe, run_session, tensors_of

SETTINGS = (("rowwise_adagrad", "adamw"), ("adagrad", "adagrad"), ("sgd", "sgd"))
# Adam and Adagrad of the dense part turn rounding into steps of full size: across plans they are not comparable.
MOVED = (("rowwise_adagrad", "sgd"), ("adagrad", "sgd"), ("sgd", "sgd"))
WORLDS = (2, 3, 4)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(make_recipe(20), tmp_path_factory.mktemp("data"))


def broken_and_unbroken(root: Path, data: Path) -> dict[tuple[str, str], tuple[Path, Path, Path]]:
    """Per setting: the checkpoint of 10 steps, of 10 + 10 and of 20; on 2 x 2 ranks with sums added in the nodes."""
    wire, found = Wire(RANKS_PER_NODE), {}
    kind = "mix_by_node" if wire.world == 2 * RANKS_PER_NODE else "mix"
    for sparse, dense in SETTINGS:
        half, whole = (make_recipe(steps, sparse=sparse, dense=dense) for steps in (10, 20))
        middle = run_session(wire, root, data, half, kind=kind)
        resumed = run_session(wire, root, data, whole, kind=kind, checkpoint=middle)
        found[sparse, dense] = (middle, resumed, run_session(wire, root, data, whole, kind=kind))
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, data: Path) -> dict[int, dict[Any, tuple[Path, Path, Path]]]:
    root = tmp_path_factory.mktemp("runs")
    for world in WORLDS:
        (root / str(world)).mkdir()
    return {world: run_ranks(world, broken_and_unbroken, root / str(world), data)[0] for world in WORLDS}


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("world", WORLDS)
def test_ten_steps_and_ten_more_equal_twenty_in_every_bit(runs: Any, world: int, setting: Any) -> None:
    _, resumed, unbroken = runs[world][setting]
    assert resumed.name == unbroken.name == "step-00000020"
    assert differing(resumed, unbroken) == []


ONLY_LOADED = ("bands", "grid_by_node")


def loaded_elsewhere(root: Path, data: Path, checkpoints: dict[Any, Path]) -> dict[Any, tuple[Path, ...]]:
    """Per setting and plan: the checkpoint saved again as soon as it was loaded, and ten steps on."""
    wire = Wire(RANKS_PER_NODE)
    found: dict[Any, tuple[Path, ...]] = {}
    for (sparse, dense), checkpoint in checkpoints.items():
        for kind in ONLY_LOADED:
            again = make_recipe(10, sparse=sparse, dense=dense)
            found[(sparse, dense), kind] = (save_again(wire, root, data, again, kind, checkpoint),)
        for kind in KINDS:
            again = make_recipe(10, sparse=sparse, dense=dense)
            on = make_recipe(20, sparse=sparse, dense=dense)
            found[(sparse, dense), kind] = (
                save_again(wire, root, data, again, kind, checkpoint),
                run_session(wire, root, data, on, kind=kind, checkpoint=checkpoint),
            )
    return found


def save_again(wire: Wire, root: Path, data: Path, recipe: Recipe, kind: str, checkpoint: Path) -> Path:
    """Load a checkpoint under another plan and save it at once."""
    plan = make_plan(kind, wire.world)
    parts = build_parts(recipe, plan, wire=wire, dense_dim=2, device=torch.device("cpu"))
    with open_checkpoint(checkpoint) as stored:
        persist.restore(parts, recipe, stored)
        position, seed = persist.position_of(stored)
    run = RunPaths(root / f"again-{kind}-{recipe.optimizer.sparse.kind}")
    if wire.rank == 0:
        run.attempt(1).dir.mkdir(parents=True)
    wire.agree(0)
    state = persist.state(recipe, plan, position, seed, {})
    pieces = persist.pieces(parts, recipe)
    group = wire.group("control")
    return save(run, step=10, attempt=1, pieces=pieces, state=state, group=group, on_phase=lambda phase: None).path


def middles_of_two(root: Path, data: Path) -> dict[tuple[str, str], Path]:
    """Per setting of MOVED: the checkpoint after ten steps."""
    wire = Wire()
    return {
        (s, d): run_session(wire, root, data, make_recipe(10, sparse=s, dense=d), kind="row_wise") for s, d in MOVED
    }


@pytest.fixture(scope="module")
def middles(tmp_path_factory: pytest.TempPathFactory, data: Path) -> dict[tuple[str, str], Path]:
    found: dict[tuple[str, str], Path] = run_ranks(2, middles_of_two, tmp_path_factory.mktemp("middles"), data)[0]
    return found


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, data: Path, middles: Any) -> dict[int, Any]:
    """The checkpoints of two ranks, loaded by three and by one."""
    found = {}
    for world in (1, 3):
        root = tmp_path_factory.mktemp(f"elsewhere-{world}")
        found[world] = run_ranks(world, loaded_elsewhere, root, data, middles)[0]
    return found


@pytest.mark.parametrize("kind", [*KINDS, *ONLY_LOADED])
@pytest.mark.parametrize("setting", MOVED, ids=str)
@pytest.mark.parametrize("world", [1, 3])
def test_another_world_and_plan_load_the_same_bits(
    middles: Any, elsewhere: Any, world: int, setting: Any, kind: str
) -> None:
    assert differing(elsewhere[world][setting, kind][0], middles[setting]) == []


def trained_reference(data: Path, setting: tuple[str, str], dtype: torch.dtype) -> Reference:
    """Plain torch over the 20 global batches of the run."""
    recipe = make_recipe(20, sparse=setting[0], dense=setting[1])
    reference, position = Reference(recipe, dense_dim=2, dtype=dtype), Position()
    stream = Stream(Split(data, "train"), recipe, order_seed=recipe.seed, rank=0, world=1)
    while position.step < stream.total_steps:
        factor = rate_factor(recipe.optimizer.schedule, position.step)
        reference.step(stream.slice_at(position).batch, factor)
        position = stream.after(position)
    return reference


@pytest.fixture(scope="module")
def references(data: Path) -> dict[Any, tuple[Reference, Reference]]:
    kinds = (torch.float32, torch.float64)
    return {setting: tuple(trained_reference(data, setting, kind) for kind in kinds) for setting in MOVED}  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", MOVED, ids=str)
@pytest.mark.parametrize("world", [1, 3])
def test_ten_more_steps_elsewhere_end_where_plain_torch_ends(
    references: Any, elsewhere: Any, world: int, setting: Any, kind: str
) -> None:
    sparse = setting[0]
    if sparse == "rowwise_adagrad" and kind in ("column_wise", "mix"):
        pytest.skip("row-wise Adagrad under column slices is another optimizer")
    (single, double), ends = references[setting], tensors_of(elsewhere[world][setting, kind][1])
    for name in single.tables:
        assert_near(ends[f"table/{name}/weight"], single.tables[name], double.tables[name], sparse, name)
    for name in single.state:
        assert_near(ends[name], single.state[name], double.state[name], sparse, name)


def slices_then_whole(root: Path, data: Path) -> tuple[Path, Path]:
    """A checkpoint made under column slices, and the same loaded into whole rows and saved at once."""
    wire, recipe = Wire(), make_recipe(10, sparse="rowwise_adagrad", dense="sgd")
    sliced = run_session(wire, root, data, recipe, kind="column_wise")
    return sliced, save_again(wire, root, data, recipe, "row_wise", sliced)


def test_sums_of_column_slices_merge_into_their_width_weighted_mean(tmp_path: Path, data: Path) -> None:
    sliced, merged = run_ranks(2, slices_then_whole, tmp_path, data)[0]
    with open_checkpoint(sliced) as stored:
        left = stored.read("table/seven/rowwise_adagrad.sum", cols=(0, 4)).double()  # dim 12, cut at 4
        right = stored.read("table/seven/rowwise_adagrad.sum", cols=(4, 12)).double()
    assert not torch.equal(left, right)
    expected = (4 * left + 8 * right) / 12
    found = tensors_of(merged)["table/seven/rowwise_adagrad.sum"].double()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


# ------------------------------------------------------------------------------------ nothing is forgotten


def perturbed_ends(root: Path, data: Path, middle: Path) -> dict[str, tuple[Path, Path]]:
    """For every tensor and every number of the position: a resume of the checkpoint with it changed."""
    wire, recipe = Wire(), make_recipe(20)
    with open_checkpoint(middle) as stored:
        tensors = {name: stored.read(name) for name in stored.tensors}
        state, manifest = stored.state, stored.manifest
    assert set(manifest.tensors) == set(tensors)
    found = {"": (middle, run_session(wire, root, data, recipe, checkpoint=middle))}
    for name in (*tensors, "step", "epoch", "row", "order_seed"):
        changed = {key: value * 1.5 + 0.01 if key == name else value for key, value in tensors.items()}
        numbers: dict[str, Any] = dict(state)
        if name in state:
            numbers[name] = {"step": 9, "epoch": 1, "row": 257, "order_seed": 5}[name]
        run = RunPaths(root / "perturbed" / name.replace("/", "-"))
        run.attempt(1).dir.mkdir(parents=True)
        path = save(
            run, step=10, attempt=1, pieces=whole(changed), state=numbers, group=None, on_phase=lambda phase: None
        ).path
        found[name] = (path, run_session(wire, root, data, recipe, checkpoint=path))
    return found


def whole(tensors: dict[str, torch.Tensor]) -> list[Piece]:
    return [
        Piece(
            name,
            tuple(tensor.shape),
            (0, tensor.shape[0]) if tensor.dim() else (0, 1),
            None,
            tensor,
            per_row=name.endswith("rowwise_adagrad.sum"),
        )
        for name, tensor in tensors.items()
    ]


def test_changing_anything_in_a_checkpoint_changes_the_end(tmp_path: Path, data: Path) -> None:
    ends = run_ranks(1, perturb_all, tmp_path, data)[0]
    _, unchanged = ends.pop("")
    assert len(ends) >= 4 * 2 + 4 + 6  # tables and their sums, the position, the dense part
    for name, (_, end) in ends.items():
        others = [other for other in differing(end, unchanged) if other != name]
        assert [other for other in others if "/" in other], f"{name} has no effect on any other tensor"


def perturb_all(root: Path, data: Path) -> dict[str, tuple[Path, Path]]:
    middle = run_session(Wire(), root, data, make_recipe(10))
    return perturbed_ends(root, data, middle)


# ------------------------------------------------------------------------------------ the data position


class Recorded(Split):
    """A split that remembers which rows it was asked for."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.taken: list[int] = []

    def take_divided(self, rows: np.ndarray, sizes: Sequence[int]) -> Iterator[Batch]:
        self.taken += rows.tolist()
        return super().take_divided(rows, sizes)


def test_an_epoch_in_four_parts_on_changing_worlds_sees_each_row_once(data: Path) -> None:
    recipe = make_recipe(20)
    split, position = Recorded(data, "train"), Position()
    for world, until in ((2, 3), (5, 4), (3, 9), (1, 10**9)):
        while position.step < until and position.epoch == 0:
            for rank in range(world):
                stream = Stream(split, recipe, order_seed=recipe.seed, rank=rank, world=world)
                stream.slice_at(position)
            position = stream.after(position)
    assert sorted(split.taken) == list(range(split.rows))
    assert split.rows < ROWS


def test_the_second_epoch_has_another_order(data: Path) -> None:
    recipe = make_recipe(20)
    orders = []
    for epoch in (0, 1):
        split = Recorded(data, "train")
        stream = Stream(split, recipe, order_seed=0, rank=0, world=1)
        position = Position(0, epoch, 0)
        while position.epoch == epoch:
            stream.slice_at(position)
            position = stream.after(position)
        orders.append(split.taken)
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_ranks_share_a_batch_without_gap_or_overlap(data: Path, world: int) -> None:
    recipe = make_recipe(20)
    whole_batch = Recorded(data, "train")
    Stream(whole_batch, recipe, order_seed=0, rank=0, world=1).slice_at(Position())
    dealt = Recorded(data, "train")
    for rank in range(world):
        Stream(dealt, recipe, order_seed=0, rank=rank, world=world).slice_at(Position())
    assert dealt.taken == whole_batch.taken
    assert len(list(itertools.chain(dealt.taken))) == recipe.train.batch
