"""Wire formats: how vectors of fp32 numbers look between ranks.

Applied at the exchange only, in both directions of the sharded tables and to the dense gradients. Whatever the format,
what is not finite arrives as not finite, so that a NaN is found where it would be found in fp32; and but for `sign`
zero stays zero, so that no optimizer moves what had no gradient. A finite number outside of what the format can say
becomes the nearest that it can, and is counted.

Legend: n vectors of D numbers.
"""

from functools import cache
from typing import Protocol

import torch

from dlrmx.recipe.schema import Exchange, WireFormat

INT8_MOST, INT8_SCALE = 127, torch.float32
INT4_MOST, INT4_SCALE = 7, torch.bfloat16
# The bits of each byte, lowest first, as factors: a row for each byte.
SIGNS = torch.tensor([[1.0 if byte >> bit & 1 else -1.0 for bit in range(8)] for byte in range(256)])
POWERS = torch.tensor([1.0, 2, 4, 8, 16, 32, 64, 128])
# A byte says the size of a vector, in twelfths of a power of two from 3e-5 (code 1) over 1 to 72 (254); 0 is zero and
# 255 not finite.
SIZE_STEPS, SIZE_ONE, SIZE_MOST, SIZE_NONE = 12, 180, 254, 255
SIZES = torch.tensor([0.0, *(2.0 ** ((code - SIZE_ONE) / SIZE_STEPS) for code in range(1, SIZE_NONE)), torch.nan])
# Steps smaller than this are sent as zeros: 1 / scale would not be finite.
SMALLEST_SCALE = 1e-37


class Codec(Protocol):
    """One format. `clamped` counts the numbers that it could not say."""

    clamped: int

    @property
    def dtype(self) -> torch.dtype:
        """Of a message."""

    def width(self, numbers: int) -> int:
        """Elements of a message that a vector of so many numbers takes."""

    def encode(self, vectors: torch.Tensor) -> torch.Tensor:
        """(n, D) fp32 -> (n, width(D))."""

    def decode(self, coded: torch.Tensor) -> torch.Tensor:
        """(n, width(D)) -> (n, at least D) fp32; columns after D mean nothing."""


class Codecs:
    """The formats of the three kinds of traffic that have one, with a count of their own each."""

    def __init__(self, settings: Exchange | None = None) -> None:
        settings = settings or Exchange()
        self.forward = make_codec(settings.forward)
        self.backward = make_codec(settings.backward)
        self.dense = make_codec(settings.dense)

    def take_clamped(self) -> dict[str, int]:
        """Numbers clamped by this rank since the last call, by kind of traffic; starts counting anew."""
        taken = {}
        for kind, codec in (("vectors", self.forward), ("gradients", self.backward), ("dense", self.dense)):
            taken[kind], codec.clamped = codec.clamped, 0
        return taken


def make_codec(name: WireFormat) -> Codec:
    """The codec of a recipe's word for it."""
    match name:
        case "fp32":
            return Fp32()
        case "fp16":
            return Half(torch.float16)
        case "bf16":
            return Half(torch.bfloat16)
        case "int8":
            return Int8()
        case "int4":
            return Int4()
        case "sign":
            return Sign()


class Fp32:
    """Numbers as they are."""

    dtype = torch.float32

    def __init__(self) -> None:
        self.clamped = 0

    def width(self, numbers: int) -> int:
        return numbers

    def encode(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors

    def decode(self, coded: torch.Tensor) -> torch.Tensor:
        return coded


class Half:
    """fp16 or bf16, rounded to nearest."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.clamped, self._dtype, self._most = 0, dtype, torch.finfo(dtype).max

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def width(self, numbers: int) -> int:
        return numbers

    def encode(self, vectors: torch.Tensor) -> torch.Tensor:
        if vectors.numel():
            low, high = torch.aminmax(vectors)
            if not (-self._most <= float(low) and float(high) <= self._most):
                vectors = self._clamp(vectors)
        return vectors.to(self._dtype)

    def _clamp(self, vectors: torch.Tensor) -> torch.Tensor:
        outside = vectors.isfinite() & (vectors.abs() > self._most)
        self.clamped += int(outside.sum())
        return torch.where(outside, vectors.clamp(-self._most, self._most), vectors)

    def decode(self, coded: torch.Tensor) -> torch.Tensor:
        return coded.to(torch.float32)


class Int8:
    """Whole numbers from -127 to 127 in steps of the vector's own, its largest magnitude / 127, which follows them.

    fbgemm's FloatToFused8BitRowwiseQuantized puts the vector's minimum at 0, which has finer steps where signs are all
    alike, but takes 8 bytes to say so and turns a zero among other numbers into a small number; under Adagrad that
    moves a weight which had no gradient by a full step.
    """

    dtype = torch.uint8

    def __init__(self) -> None:
        self.clamped = 0  # the scale leaves no number outside

    def width(self, numbers: int) -> int:
        return numbers + INT8_SCALE.itemsize

    def encode(self, vectors: torch.Tensor) -> torch.Tensor:
        numbers = vectors.shape[1]
        steps, scale = _in_steps(vectors, INT8_MOST, INT8_SCALE)
        coded = torch.empty(len(vectors), self.width(numbers), dtype=torch.uint8, device=vectors.device)
        coded[:, :numbers].view(torch.int8).copy_(steps)
        coded[:, numbers:] = scale.view(torch.uint8).view(-1, INT8_SCALE.itemsize)
        return coded

    def decode(self, coded: torch.Tensor) -> torch.Tensor:
        numbers = coded.shape[1] - INT8_SCALE.itemsize
        scale = coded[:, numbers:].contiguous().view(INT8_SCALE)
        return coded[:, :numbers].view(torch.int8).to(torch.float32) * scale


class Int4:
    """Whole numbers from -7 to 7 in steps of the vector's own, its largest magnitude / 7, which follows them in bf16.

    A byte holds a number of the vector's first half, plus 8, in its low bits, and one of the second in its high ones.
    """

    dtype = torch.uint8

    def __init__(self) -> None:
        self.clamped = 0  # the scale leaves no number outside

    def width(self, numbers: int) -> int:
        assert numbers % 2 == 0, numbers  # dims are multiples of 4
        return numbers // 2 + INT4_SCALE.itemsize

    def encode(self, vectors: torch.Tensor) -> torch.Tensor:
        half = vectors.shape[1] // 2
        steps, scale = _in_steps(vectors, INT4_MOST, INT4_SCALE)
        coded = torch.empty(len(vectors), self.width(2 * half), dtype=torch.uint8, device=vectors.device)
        coded[:, :half] = torch.add(steps[:, :half], steps[:, half:], alpha=16).add_(8 + 16 * 8)
        coded[:, half:] = scale.view(torch.uint8).view(-1, INT4_SCALE.itemsize)
        return coded

    def decode(self, coded: torch.Tensor) -> torch.Tensor:
        half = coded.shape[1] - INT4_SCALE.itemsize
        both, scale = coded[:, :half], coded[:, half:].contiguous().view(INT4_SCALE)
        vectors = torch.empty(len(coded), 2 * half, device=coded.device)
        vectors[:, :half], vectors[:, half:] = both & 15, both >> 4
        return vectors.sub_(8).mul_(scale)


class Sign:
    """The sign of each number, a bit, and the vector's mean magnitude, a byte: within 3% of it, from 3e-5 to 72.

    A vector of less arrives as zeros, one of more as 72s, which are counted. All numbers of a vector arrive with one
    magnitude, so a zero among others does not stay zero. The mean magnitude is what makes the squared error least.
    """

    dtype = torch.uint8

    def __init__(self) -> None:
        self.clamped = 0

    def width(self, numbers: int) -> int:
        return -(-numbers // 8) + 1

    def encode(self, vectors: torch.Tensor) -> torch.Tensor:
        count, numbers = vectors.shape
        coded = torch.empty(count, self.width(numbers), dtype=torch.uint8, device=vectors.device)
        size = vectors.abs().mean(1)
        if bool(size.isinf().any()):  # finite numbers may have a sum that is not
            size = (vectors.abs() / numbers).sum(1)
        code = torch.round(SIZE_STEPS * torch.log2(size) + SIZE_ONE)
        self.clamped += numbers * int((size.isfinite() & (code > SIZE_MOST)).sum())
        coded[:, -1] = torch.where(size.isfinite(), code.clamp(0, SIZE_MOST), SIZE_NONE)
        bits = torch.nn.functional.pad((vectors >= 0).to(torch.float32), (0, -numbers % 8))
        coded[:, :-1] = bits.view(count, coded.shape[1] - 1, 8) @ _there(bits.device)[1]
        return coded

    def decode(self, coded: torch.Tensor) -> torch.Tensor:
        of_byte, _, of_code = _there(coded.device)
        size = of_code.index_select(0, coded[:, -1].to(torch.int32)).unsqueeze(1)
        signs = of_byte.index_select(0, coded[:, :-1].reshape(-1).to(torch.int32))
        return signs.view(len(coded), 8 * (coded.shape[1] - 1)) * size


@cache
def _there(device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `sign` looks up, on a device."""
    return SIGNS.to(device), POWERS.to(device), SIZES.to(device)


def _in_steps(vectors: torch.Tensor, most: int, scale_type: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, D) fp32 whole numbers from -most to most, and the (n,) size of their steps, which may be not finite."""
    scale = (_largest(vectors) / most).to(scale_type)
    steps = vectors * torch.where(scale > SMALLEST_SCALE, 1 / scale.to(torch.float32), 0)
    return steps.round_(), scale.view(-1)


def _largest(vectors: torch.Tensor) -> torch.Tensor:
    """The (n, 1) largest magnitude of each vector. Halving the columns is 10 times as fast as a norm over each row."""
    found = vectors.abs()
    while found.shape[1] > 4 and found.shape[1] % 2 == 0:
        half = found.shape[1] // 2
        found = torch.maximum(found[:, :half], found[:, half:])
    return found.amax(1, keepdim=True)
