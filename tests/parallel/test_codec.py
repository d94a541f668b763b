"""Wire formats, held to numpy in every bit."""

import numpy as np
import pytest
import torch

from dlrmx.parallel.codec import Codecs, make_codec
from dlrmx.recipe.schema import Exchange, WireFormat

FORMATS: tuple[WireFormat, ...] = ("fp32", "fp16", "bf16", "int8", "int4", "sign")
# Largest error beside the largest magnitude of the row: half a unit in the last place, half a step of 127 or of 7; the
# size of the latter is off by half a unit of bf16.
ERRORS = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 0.5 / 127, "int4": 0.5 / 7 * (1 + 2.0**-8)}


def vectors(rows: int = 1000, dim: int = 64) -> torch.Tensor:
    """Rows of magnitudes from 1e-6 to 1e3, of one sign or both, a fifth of all numbers zero."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(rows, dim)) * 10.0 ** rng.uniform(-6, 3, size=(rows, 1))
    values[::3] = np.abs(values[::3])
    values[rng.random((rows, dim)) < 0.2] = 0
    return torch.from_numpy(values.astype(np.float32))


def through(name: WireFormat, values: torch.Tensor) -> torch.Tensor:
    codec = make_codec(name)
    coded = codec.encode(values)
    assert coded.dtype == codec.dtype
    assert coded.shape == (len(values), codec.width(values.shape[1]))
    return codec.decode(coded)[:, : values.shape[1]]


def by_numpy(name: WireFormat, values: np.ndarray) -> np.ndarray:
    """What arrives, written out: the nearest number of the format, halves to even."""
    if name == "fp32":
        return values
    if name == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if name == "bf16":
        bits = values.view(np.uint32).astype(np.uint64)
        kept = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
        return kept.astype(np.uint32).view(np.float32)
    if name == "sign":
        with np.errstate(divide="ignore"):
            code = np.rint(12 * np.log2(np.abs(values).astype(np.float64).mean(axis=1, keepdims=True)) + 180)
        sizes = np.where(code < 1, 0, 2.0 ** ((np.minimum(code, 254) - 180) / 12)).astype(np.float32)
        return np.where(values >= 0, sizes, -sizes)
    most = np.float32({"int8": 127, "int4": 7}[name])
    scale = np.abs(values).max(axis=1, keepdims=True) / most
    if name == "int4":
        scale = by_numpy("bf16", scale)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    found: np.ndarray = np.rint(values * inverse) * scale
    return found.astype(np.float32)


@pytest.mark.parametrize("name", FORMATS[1:])
def test_what_arrives_is_what_numpy_says_in_every_bit(name: WireFormat) -> None:
    values = vectors()
    assert np.array_equal(through(name, values).numpy(), by_numpy(name, values.numpy()))


@pytest.mark.parametrize("name", ERRORS)
def test_the_error_is_that_of_the_format_and_zero_stays_zero(name: WireFormat) -> None:
    values = vectors()
    got = through(name, values)
    most = values.abs().amax(1, keepdim=True)
    smallest_fp16 = 2.0**-25 if name == "fp16" else 0.0
    assert bool(((got - values).abs() <= ERRORS[name] * most * (1 + 1e-6) + smallest_fp16).all())
    assert bool((got[values == 0] == 0).all())


@pytest.mark.parametrize("name", FORMATS)
def test_coding_twice_changes_nothing_more_than_once(name: WireFormat) -> None:
    once = through(name, vectors())
    torch.testing.assert_close(through(name, once), once, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_not_finite_arrives_so(name: WireFormat) -> None:
    values = torch.ones(3, 4)
    values[0, 1], values[1, 2] = torch.nan, -torch.inf
    got = through(name, values)
    assert [bool(torch.isfinite(row).all()) for row in got] == [False, False, True]
    assert np.array_equal(got[2:].numpy(), by_numpy(name, values[2:].numpy()))


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_what_the_format_cannot_say_is_clamped_and_counted(name: WireFormat) -> None:
    codecs = Codecs(Exchange(backward=name))
    most = torch.finfo(codecs.backward.dtype).max
    values = torch.tensor([[3.4028e38, -3.4028e38, 1.0, torch.inf]])
    got = codecs.backward.decode(codecs.backward.encode(values))
    assert got.tolist() == [[most, -most, 1.0, torch.inf]]
    assert codecs.take_clamped() == {"vectors": 0, "gradients": 2, "dense": 0}
    assert codecs.take_clamped() == {"vectors": 0, "gradients": 0, "dense": 0}


@pytest.mark.parametrize("name", FORMATS)
def test_no_rows_and_rows_of_next_to_nothing(name: WireFormat) -> None:
    assert through(name, torch.empty(0, 8)).shape == (0, 8)
    tiny = torch.full((1, 4), 1e-38)
    assert bool((through(name, tiny).abs() <= 1.01 * tiny).all())


def test_int8_takes_a_byte_a_number_and_four_a_row_and_int4_half_a_byte_and_two() -> None:
    assert make_codec("int8").encode(torch.ones(10, 64)).nbytes == 10 * (64 + 4)
    assert make_codec("int4").encode(torch.ones(10, 64)).nbytes == 10 * (32 + 2)


def test_where_each_number_of_int4_lies() -> None:
    """Of 7, -7, 1 and 0 in steps of 1: 15 with 9, 1 with 8; the scale's bf16 ends in 0x3f80, low byte first."""
    coded = make_codec("int4").encode(torch.tensor([[7.0, -7.0, 1.0, 0.0]]))
    assert coded.tolist() == [[15 + 16 * 9, 1 + 16 * 8, 0x80, 0x3F]]


def test_sign_takes_a_bit_a_number_and_a_byte_a_row() -> None:
    """Signs + - - + (9) and + + + + (15), lowest bit first, and size 1, code 180; twelve numbers take two bytes."""
    ones = torch.tensor([[1.0, -1, -1, 1, 1, 1, 1, 1]])
    assert make_codec("sign").encode(ones).tolist() == [[9 + 16 * 15, 180]]
    assert make_codec("sign").encode(torch.ones(10, 12)).nbytes == 10 * (2 + 1)


def test_sign_tells_the_mean_magnitude_within_3_percent_and_counts_what_is_larger_than_72() -> None:
    values = torch.from_numpy(
        np.random.default_rng(1).normal(size=(200, 20)) * 10 ** np.linspace(-4, 1.5, 200)[:, None]
    )
    size = values.abs().mean(1, keepdim=True)
    got = through("sign", values.to(torch.float32)) / (size * values.sign())
    assert bool(((got - 1).abs() < 0.03).all())
    codec = make_codec("sign")
    assert codec.decode(codec.encode(torch.tensor([[100.0, -100, 0, 100]]))).abs().unique().tolist() == pytest.approx(
        [71.84], rel=1e-3
    )
    assert codec.clamped == 4
    assert not codec.decode(codec.encode(torch.tensor([[2e-5, -2e-5, 2e-5, 2e-5]]))).any()
    codec.clamped = 0
    assert codec.decode(codec.encode(torch.full((1, 16), 3e37))).unique().tolist() == pytest.approx([71.84], rel=1e-3)
    assert codec.clamped == 16, "their sum is infinite, they are not"


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 12, 20, 2048])
def test_the_largest_of_a_row_of_any_width_sets_its_steps(dim: int) -> None:
    values = vectors(64, dim)
    assert np.array_equal(through("int8", values).numpy(), by_numpy("int8", values.numpy()))
