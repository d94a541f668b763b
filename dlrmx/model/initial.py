"""Initial values of embedding tables: a hash of (seed, table, row, column), the same bits for any slice.

Row r of a table is a sequence of its own, as in SplitMix: column c takes mix(offset[r] + c * step[r]), whose
upper 24 bits become a uniform number. `offset` and `step` are hashes of the row and of the table's key; no two
of 2**40 rows share both (but for the lowest bit of `step`, which makes it odd). Everything is a wrapping int32
operation on a small block, so it is fast on any device and gives the same bits on all.
"""

import hashlib
import math
import struct

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 18  # a block and its scratch copy are 1 MiB each: near the caches, few calls
GOLDEN = 0x9E3779B9 - (1 << 32)  # 2**32 / golden ratio, as a signed int32
# Rounds and constants of `lowbias32` (Chris Wellons, "Prospecting for Hash Functions"), the second one signed.
MULTIPLIERS = (0x7FEB352D, 0x846CA68B - (1 << 32))


def initial_block(
    seed: int,
    table: str,
    rows: int,
    row_start: int,
    row_end: int,
    col_start: int,
    col_end: int,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Rows [row_start, row_end) x columns [col_start, col_end) of the table's initial values, as a new tensor.

    Uniform in [-1 / sqrt(rows), 1 / sqrt(rows)), in fp32 and then rounded to `dtype`.
    """
    out = torch.empty(row_end - row_start, col_end - col_start, dtype=dtype, device=device)
    fill_initial(out, seed=seed, table=table, rows=rows, row_start=row_start, col_start=col_start)
    return out


@torch.no_grad()
def fill_initial(out: Tensor, *, seed: int, table: str, rows: int, row_start: int, col_start: int) -> None:
    """Write initial values into `out` (r, c): the table's rows from `row_start`, its columns from `col_start`.

    `rows` is the whole table's number of rows, at most 2**40. Needs about 3 MiB beside `out`.
    """
    num_rows, num_cols = out.shape
    assert 0 <= row_start <= row_start + num_rows <= rows <= 1 << 40
    block_rows = max(1, BLOCK_ELEMENTS // max(1, num_cols))
    columns = torch.arange(col_start, col_start + num_cols, dtype=torch.int32, device=out.device)
    key = _key(seed, table)
    scale = _float32(1 / math.sqrt(rows)) / (1 << 23)
    values, scratch = torch.empty(2, block_rows, num_cols, dtype=torch.int32, device=out.device)
    for start in range(0, num_rows, block_rows):
        end = min(start + block_rows, num_rows)
        offset, step = _row_sequence(key, row_start + start, row_start + end, out.device)
        block, spare = values[: end - start], scratch[: end - start]
        torch.mul(step[:, None], columns, out=block)
        block += offset[:, None]
        _mix(block, spare)
        block >>= 8  # arithmetic: the upper 24 bits, in [-2**23, 2**23), exact in fp32
        out[start:end] = block.to(torch.float32).mul_(scale)


def _row_sequence(key: tuple[int, int, int], start: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Offset and odd step, int32 (end - start,) each, of rows [start, end)."""
    row = torch.arange(start, end, dtype=torch.int64, device=device)
    high = (row >> 32).to(torch.int32)
    hashed = row.to(torch.int32)  # the low 32 bits
    spare = torch.empty_like(hashed)
    _mix(hashed.bitwise_xor_(key[0]), spare)
    offset = hashed + high * GOLDEN + key[1]
    _mix(offset, spare)
    step = hashed.bitwise_xor_(key[2])
    _mix(step, spare)
    return offset, step.bitwise_or_(1)


def _mix(x: Tensor, spare: Tensor) -> None:
    """Scramble int32 `x` in place, by a bijection: lowbias32 but for its last xorshift, which moves low bits only."""
    for shift, multiplier in zip((16, 15), MULTIPLIERS, strict=True):
        torch.bitwise_right_shift(x, shift, out=spare)
        spare &= (1 << (32 - shift)) - 1  # int32 shifts in copies of the sign; a bijection needs zeros
        x ^= spare
        x *= multiplier


def _key(seed: int, table: str) -> tuple[int, int, int]:
    """Three int32 words that stand for the seed and the table's name."""
    first, second, third = struct.unpack("<3i", hashlib.sha256(f"{seed}/{table}".encode()).digest()[:12])
    return first, second, third


def _float32(value: float) -> float:
    """`value` rounded to fp32, so that no device multiplies by a longer number."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded
