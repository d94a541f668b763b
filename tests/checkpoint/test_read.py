"""Any slice of any tensor, whatever plan and number of ranks wrote it, comes back in every bit."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.numpy import load_file

from checkpoint_cases import (
    LAYOUTS,
    TABLES,
    WORLDS,
    flip,
    layout,
    make_run,
    pieces_of,
    row_sum,
    save_all,
    weight,
    whole,
)
from dlrmx.checkpoint import read
from dlrmx.checkpoint.read import DTYPES, Stored, open_checkpoint
from dlrmx.checkpoint.verify import problems
from dlrmx.checkpoint.write import Piece
from dlrmx.errors import InputError
from dlrmx.runs.layout import RunPaths
from ranks import run_ranks

WRITERS = list(product(LAYOUTS, WORLDS))


def save_each_layout(folder: Path) -> None:
    """On five ranks: each layout, saved by the first 1, 2, ... 5 of them."""
    rank = dist.get_rank()
    groups = {world: dist.new_group(list(range(world))) for world in WORLDS}
    for step, (kind, world) in enumerate(WRITERS):
        if rank < world:
            save_all(RunPaths(folder / "run-1"), groups[world], step, pieces_of(kind, world, rank))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    folder = tmp_path_factory.mktemp("resharding")
    run = make_run(folder)
    run_ranks(max(WORLDS), save_each_layout, folder)
    return run


def expected_sum(table: str, cuts: list[tuple[int, int]], cols: tuple[int, int]) -> torch.Tensor:
    """Hand-made width-weighted mean, in fp64, of the slices `cuts` that overlap `cols`."""
    widths = [max(0, min(cols[1], end) - max(cols[0], start)) for start, end in cuts]
    total = sum(width * row_sum(table, *cut).double() for width, cut in zip(widths, cuts, strict=True))
    assert isinstance(total, torch.Tensor)
    return total / (cols[1] - cols[0])


# ------------------------------------------------------------------------------------ any plan to any plan


@pytest.mark.parametrize("step", range(len(WRITERS)), ids=[f"{kind}-{world}" for kind, world in WRITERS])
def test_reshard(run: RunPaths, step: int) -> None:
    with open_checkpoint(run.checkpoint(step)) as stored:
        for table, kind, world in product(TABLES, LAYOUTS, WORLDS):
            truth = weight(table)
            for _, (row_start, row_end, col_start, col_end) in layout(kind, table, world):
                got = stored.read(f"table/{table}/weight", rows=(row_start, row_end), cols=(col_start, col_end))
                assert got.dtype == truth.dtype
                assert torch.equal(got, truth[row_start:row_end, col_start:col_end]), (table, kind, world)


@pytest.mark.parametrize("step", range(len(WRITERS)), ids=[f"{kind}-{world}" for kind, world in WRITERS])
def test_reshard_row_wise_sums(run: RunPaths, step: int) -> None:
    writer, writers = WRITERS[step]
    with open_checkpoint(run.checkpoint(step)) as stored:
        for table, world in product(TABLES, WORLDS):
            cuts = sorted({(box[2], box[3]) for _, box in layout(writer, table, writers) if box[2] < box[3]})
            for _, (row_start, row_end, *cols) in layout("column_wise", table, world) + layout(
                "row_wise", table, world
            ):
                got = stored.read(
                    f"table/{table}/rowwise_adagrad.sum", rows=(row_start, row_end), cols=(cols[0], cols[1])
                )
                truth = expected_sum(table, cuts, (cols[0], cols[1]))[row_start:row_end]
                torch.testing.assert_close(got.double(), truth, rtol=1e-6, atol=0)
                if (cols[0], cols[1]) in cuts:  # a slice that stays as it is keeps its bits
                    assert torch.equal(got, row_sum(table, cols[0], cols[1])[row_start:row_end])


def test_a_rank_with_nothing_has_a_file_with_nothing(run: RunPaths) -> None:
    directory = run.checkpoint(WRITERS.index(("table_wise", 5)))
    holdings = [len(load_file(directory / f"rank-{rank:04d}.safetensors")) for rank in range(5)]
    assert holdings[3:] == [0, 0]
    assert sum(holdings) == 2 * len(TABLES)
    assert problems(directory) == []


# ------------------------------------------------------------------------------------ by hand


def stored_with(folder: Path, pieces: list[Piece]) -> Stored:
    return open_checkpoint(save_all(make_run(folder), None, 1, pieces).path)


def sums(cols: tuple[int, int], *values: float) -> Piece:
    name = "table/t/rowwise_adagrad.sum"
    return Piece(name, (len(values),), (0, len(values)), cols, torch.tensor(values), per_row=True)


def test_width_weighted_mean_by_hand(tmp_path: Path) -> None:
    """Slices of 4, 8 and 4 columns hold (1, 10), (4, 20) and (7, 60)."""
    pieces = [sums((0, 4), 1.0, 10.0), sums((4, 12), 4.0, 20.0), sums((12, 16), 7.0, 60.0)]
    with stored_with(tmp_path, pieces) as stored:

        def mean(cols: tuple[int, int] | None, rows: tuple[int, int] | None = None) -> list[float]:
            values: list[float] = stored.read("table/t/rowwise_adagrad.sum", rows=rows, cols=cols).tolist()
            return values

        assert mean(None) == [(4 * 1 + 8 * 4 + 4 * 7) / 16, (4 * 10 + 8 * 20 + 4 * 60) / 16] == [4.0, 27.5]
        assert mean((0, 8)) == [(4 * 1 + 4 * 4) / 8, (4 * 10 + 4 * 20) / 8] == [2.5, 15.0]
        assert mean((8, 16)) == [5.5, 40.0]
        assert mean((4, 8)) == [4.0, 20.0]  # a split slice inherits
        assert mean((8, 16), rows=(1, 2)) == [40.0]
        with pytest.raises(InputError, match="2 x 16"):
            mean((0, 20))


def test_an_unsliced_sum_stands_for_any_columns(tmp_path: Path) -> None:
    piece = Piece("s", (3,), (0, 3), None, torch.tensor([1.0, 2.0, 3.0]), per_row=True)
    with stored_with(tmp_path, [piece]) as stored:
        assert stored.read("s", rows=(1, 3), cols=(32, 64)).tolist() == [2.0, 3.0]
        assert stored.read("s").tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_every_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    table = torch.randint(0, 2, (9, 4), generator=torch.Generator().manual_seed(1)).to(dtype)
    with stored_with(
        tmp_path, [whole("table", table), whole("one", table[0, 0]), whole("odd", table[0, :3])]
    ) as stored:
        assert torch.equal(stored.read("table", rows=(2, 7), cols=(1, 3)), table[2:7, 1:3])
        assert torch.equal(stored.read("one"), table[0, 0])
        assert torch.equal(stored.read("odd"), table[0, :3])
        assert stored.read("table").dtype == dtype


def test_every_bit_of_a_float_survives(tmp_path: Path) -> None:
    """NaN with its payload, -0.0, infinity, subnormals."""
    bits = torch.tensor([0x7FC01234, -0x80000000, 0x7F800000, 1, 0x00800000], dtype=torch.int32)
    with stored_with(tmp_path, [whole("t", bits.view(torch.float32))]) as stored:
        assert torch.equal(stored.read("t").view(torch.int32), bits)


def test_shapes_from_scalar_to_three_dims_and_of_no_elements(tmp_path: Path) -> None:
    tensors = {
        "scalar": torch.tensor(7),
        "vector": torch.arange(5),
        "cube": torch.arange(24).reshape(2, 3, 4),
        "empty": torch.empty(0),
        "no rows": torch.empty(0, 8),
        "no columns": torch.empty(8, 0),
        "state": torch.arange(40, dtype=torch.uint8),
    }
    with stored_with(tmp_path, [whole(name, tensor) for name, tensor in tensors.items()]) as stored:
        for name, tensor in tensors.items():
            got = stored.read(name)
            assert torch.equal(got, tensor)
            assert got.shape == tensor.shape
        assert torch.equal(stored.read("cube", rows=(1, 2)), tensors["cube"][1:2])
        assert stored.read("vector", rows=(3, 3)).shape == (0,)
        assert list(stored.tensors) == sorted(tensors)


def test_strided_data_is_saved_as_it_reads(tmp_path: Path) -> None:
    base = torch.arange(60.0).reshape(6, 10)
    with stored_with(tmp_path, [whole("columns", base[:, 2:7]), whole("turned", base.T)]) as stored:
        assert torch.equal(stored.read("columns"), base[:, 2:7])
        assert torch.equal(stored.read("turned"), base.T)


def test_other_programs_can_read_the_files(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(3, 4)
    with stored_with(tmp_path, [whole("table/t/weight", table), whole("flag", torch.tensor(True))]) as stored:
        content = load_file(stored.directory / "rank-0000.safetensors")
    assert content["table/t/weight"].tolist() == table.tolist()
    assert content["flag"].item() is True


def test_state_comes_back(tmp_path: Path) -> None:
    state = {
        "step": 3,
        "row": 96,
        "fingerprint": "0123456789ab",
        "metrics": {"validation.ne": None},
        "features": ["a", "b"],
    }
    with open_checkpoint(save_all(make_run(tmp_path), None, 3, [], state=state).path) as stored:
        assert stored.state == state


# ------------------------------------------------------------------------------------ into a given tensor


def test_reads_into_a_view_of_a_larger_tensor(tmp_path: Path) -> None:
    table = torch.arange(40.0).reshape(10, 4)
    fused = torch.full((30, 8), -1.0)
    with stored_with(tmp_path, [whole("t", table)]) as stored:
        view = fused[20:25, 4:6]
        assert stored.read("t", rows=(5, 10), cols=(2, 4), out=view) is view
    assert torch.equal(fused[20:25, 4:6], table[5:, 2:])
    assert int((fused == -1).sum()) == 30 * 8 - 10


def test_blocks_of_rows_bound_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.arange(1000.0).reshape(250, 4)
    monkeypatch.setattr(read, "BLOCK_BYTES", 160)
    monkeypatch.setattr(read, "MEAN_ROWS", 7)
    largest = 0
    copy = Stored._copy

    def watched(self: Stored, tensor: str, target: torch.Tensor, block: torch.Tensor) -> None:
        nonlocal largest
        largest = max(largest, block.nbytes)
        copy(self, tensor, target, block)

    monkeypatch.setattr(Stored, "_copy", watched)
    halves = [sums((0, 2), *map(float, range(250))), sums((2, 8), *map(float, range(250, 500)))]
    with stored_with(tmp_path, [whole("t", table), *halves]) as stored:
        assert torch.equal(stored.read("t", rows=(3, 249)), table[3:249])
        assert largest == 160
        mean = stored.read("table/t/rowwise_adagrad.sum", rows=(5, 240))
    assert mean.tolist() == [(2 * row + 6 * (row + 250)) / 8 for row in range(5, 240)]


@pytest.mark.parametrize(("stored_as", "wanted"), [(torch.float16, torch.float32), (torch.float32, torch.float16)])
def test_fp16_and_fp32_convert(tmp_path: Path, stored_as: torch.dtype, wanted: torch.dtype) -> None:
    table = torch.rand(6, 4, generator=torch.Generator().manual_seed(2)).to(stored_as)
    with stored_with(tmp_path, [whole("t", table)]) as stored:
        got = stored.read("t", rows=(1, 6), out=torch.empty(5, 4, dtype=wanted))
    assert torch.equal(got, table[1:].to(wanted))


def test_a_value_too_large_for_fp16_is_no_infinity(tmp_path: Path) -> None:
    with stored_with(
        tmp_path, [whole("big", torch.tensor([1.0, 70000.0])), whole("inf", torch.tensor([torch.inf]))]
    ) as stored:
        with pytest.raises(InputError, match=r"big: holds a value above 65504"):
            stored.read("big", out=torch.empty(2, dtype=torch.float16))
        assert stored.read("inf", out=torch.empty(1, dtype=torch.float16)).item() == torch.inf


# ------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensor": "table/u/weight"}, "no tensor table/u/weight\n.*checkpoints show"),
        ({"tensor": "t", "rows": (0, 11)}, r"t: rows \[0, 11\) columns \[0, 4\) were asked for; it has 10 x 4"),
        ({"tensor": "t", "cols": (2, 5)}, r"t: rows \[0, 10\) columns \[2, 5\) were asked for; it has 10 x 4"),
        ({"tensor": "t", "rows": (-1, 3)}, "were asked for"),
        ({"tensor": "t", "out": torch.empty(10, 5)}, r"t: the slice has shape \[10, 4\], not \[10, 5\]"),
        ({"tensor": "t", "out": torch.empty(10, 4, dtype=torch.int64)}, "t: is torch.float32 and does not convert"),
        ({"tensor": "t", "out": torch.empty(10, 4, dtype=torch.bfloat16)}, "does not convert to torch.bfloat16"),
    ],
)
def test_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with stored_with(tmp_path, [whole("t", torch.zeros(10, 4))]) as stored, pytest.raises(InputError, match=message):
        stored.read(**arguments)


def test_damage_is_an_input_error_that_names_the_file(tmp_path: Path) -> None:
    directory = save_all(make_run(tmp_path), None, 1, [whole("t", torch.zeros(10, 4))]).path
    file = directory / "rank-0000.safetensors"
    content = file.read_bytes()
    flip(file, 9)  # in the header; the size is right
    with (
        open_checkpoint(directory) as stored,
        pytest.raises(InputError, match="rank-0000.safetensors: t: .*\n.*verify"),
    ):
        stored.read("t")
    file.write_bytes(content.replace(b"[10, 4]", b"[4, 10]"))
    with (
        open_checkpoint(directory) as stored,
        pytest.raises(InputError, match="t: shape or dtype is not"),
    ):
        stored.read("t")
    file.write_bytes(content[:-1])
    with pytest.raises(InputError, match="rank-0000.safetensors: short"):
        open_checkpoint(directory)
    (directory / "manifest.json").unlink()
    with pytest.raises(InputError, match="no manifest.json"):
        open_checkpoint(directory)
