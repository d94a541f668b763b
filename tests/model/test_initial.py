"""Initial table values: bits against the same hash in Python's whole numbers, slices, statistics, memory."""

import hashlib
import math
import struct

import pytest
import torch

from dlrmx.model import initial
from dlrmx.model.initial import fill_initial, initial_block

MASK = 0xFFFFFFFF


def mix(x: int) -> int:
    for shift, multiplier in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> shift
        x = x * multiplier & MASK
    return x


def expected(seed: int, table: str, rows: int, row: int, col: int) -> float:
    """The value by plain arithmetic on unsigned 32-bit numbers."""
    key = [
        int.from_bytes(hashlib.sha256(f"{seed}/{table}".encode()).digest()[at : at + 4], "little") for at in (0, 4, 8)
    ]
    low = mix((row & MASK) ^ key[0])
    offset = mix((low + (row >> 32) * 0x9E3779B9 + key[1]) & MASK)
    step = mix(low ^ key[2]) | 1
    top = mix((offset + col * step) & MASK) >> 8
    signed = top - (1 << 24) if top >= 1 << 23 else top
    bound = struct.unpack("<f", struct.pack("<f", 1 / math.sqrt(rows)))[0]
    return float(struct.unpack("<f", struct.pack("<f", signed * bound / (1 << 23)))[0])


@pytest.mark.parametrize(
    ("seed", "table", "rows", "row_start", "col_start"),
    [
        (0, "item", 1_000, 0, 0),
        (7, "user", 1_000, 990, 3),
        (2**31 - 1, "größe", 2**40, 2**31 - 5, 60),
        (1, "item", 2**40, 2**32 - 5, 0),  # crosses the low half of the row number
        (1, "item", 2**40, 2**40 - 10, 2_044),
        (0, "one", 1, 0, 0),
    ],
)
def test_bits_equal_plain_arithmetic(seed: int, table: str, rows: int, row_start: int, col_start: int) -> None:
    num_rows = min(10, rows)
    block = initial_block(seed, table, rows, row_start, row_start + num_rows, col_start, col_start + 4)
    wanted = [[expected(seed, table, rows, row_start + r, col_start + c) for c in range(4)] for r in range(num_rows)]
    assert block.tolist() == wanted


def test_any_slice_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = initial_block(3, "item", 700, 0, 700, 0, 12)
    monkeypatch.setattr(initial, "BLOCK_ELEMENTS", 64)  # many small blocks, none of them whole at the end
    assert torch.equal(initial_block(3, "item", 700, 0, 700, 0, 12), whole)
    assert torch.equal(initial_block(3, "item", 700, 13, 600, 4, 8), whole[13:600, 4:8])
    assert torch.equal(initial_block(3, "item", 700, 699, 700, 0, 12), whole[699:])


def test_fills_a_view_and_nothing_beside_it() -> None:
    out = torch.full((20, 8), 9.0)
    fill_initial(out[5:10, 4:], seed=0, table="item", rows=50, row_start=30, col_start=4)
    assert torch.equal(out[5:10, 4:], initial_block(0, "item", 50, 30, 35, 4, 8))
    assert out.eq(9.0).sum() == out.numel() - 5 * 4


def test_an_empty_slice() -> None:
    assert initial_block(0, "item", 3, 2, 2, 0, 4).shape == (0, 4)


def test_fp16_is_the_rounded_fp32() -> None:
    fp32 = initial_block(0, "item", 100, 0, 100, 0, 8)
    assert torch.equal(initial_block(0, "item", 100, 0, 100, 0, 8, dtype=torch.float16), fp32.to(torch.float16))


def test_rows_outside_the_table_are_our_bug() -> None:
    with pytest.raises(AssertionError):
        initial_block(0, "item", 10, 5, 11, 0, 4)


def test_values_are_uniform_and_uncorrelated() -> None:
    """One million values: each statistic within five standard deviations of the uniform distribution's."""
    rows, dim = 1 << 15, 32
    unit = initial_block(0, "item", rows, 0, rows, 0, dim).double() * math.sqrt(rows)  # in [-1, 1)
    count = unit.numel()
    assert -1 <= unit.min() < -0.9999
    assert 0.9999 < unit.max() < 1
    assert abs(unit.mean()) < 5 / math.sqrt(3 * count)
    assert abs(unit.square().mean() - 1 / 3) < 5 * math.sqrt(4 / 45 / count)
    bins = torch.histc(unit, 256, -1, 1)
    chi_squared = ((bins - count / 256) ** 2 / (count / 256)).sum()
    assert abs(chi_squared - 255) < 5 * math.sqrt(2 * 255)
    others = {
        "next row": (unit[1:], unit[:-1]),
        "next column": (unit[:, 1:], unit[:, :-1]),
        "next block of rows": (unit[4096:], unit[:-4096]),
        "next seed": (unit, initial_block(1, "item", rows, 0, rows, 0, dim).double() * math.sqrt(rows)),
        "other table": (unit, initial_block(0, "user", rows, 0, rows, 0, dim).double() * math.sqrt(rows)),
        "high half of the row number": (
            unit,
            initial_block(0, "item", 2**40, 2**32, 2**32 + rows, 0, dim).double() * 2**20,
        ),
    }
    for name, (one, other) in others.items():
        assert abs((one * other).mean()) < 5 / 3 / math.sqrt(one.numel()), name


def test_rows_and_columns_have_their_own_spread() -> None:
    """Column and row means scatter as means of independent values do: no row or column is constant or shifted."""
    rows, dim = 1 << 14, 64
    unit = initial_block(5, "item", rows, 0, rows, 0, dim).double() * math.sqrt(rows)
    for means, size in ((unit.mean(dim=0), rows), (unit.mean(dim=1), dim)):
        spread = means.square().mean() * 3 * size  # chi-squared / its degrees of freedom
        assert abs(spread - 1) < 5 * math.sqrt(2 / len(means))


def test_no_two_rows_are_equal() -> None:
    rows = 1 << 17  # two 32-bit hashes among so many would be equal twice
    block = initial_block(0, "item", rows, 0, rows, 0, 4)
    assert len(torch.unique(block, dim=0)) == rows
