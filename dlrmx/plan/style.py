"""How vectors and gradients travel: the exchange of which steps are predicted, and the bytes of a number on its way."""

from dataclasses import dataclass
from typing import Literal

from dlrmx.recipe.schema import Recipe, Threshold, WireFormat


@dataclass(frozen=True)
class Style:
    """How vectors travel, and what overlaps.

    exchange: "touched": only bags that a rank's rows touch, as ours; "reduce_scatter": every bag from every rank that
    holds rows of its table, as in Neo's paper and TorchRec. overlap: "none", or "neo": ids behind the step before,
    vectors behind the bottom MLP, gradients and update behind the all-reduce (the model in the paper's appendix).
    forward_bytes, backward_bytes, dense_bytes: of one number of vectors, of their and of dense gradients, on its way.
    matrix: the recipe's precision, or TF32 for its fp32. finds_forward, finds_backward: which vectors have thresholds.
    """

    exchange: Literal["touched", "reduce_scatter"] = "touched"
    overlap: Literal["none", "neo"] = "none"
    forward_bytes: float = 4
    backward_bytes: float = 4
    dense_bytes: float = 4
    matrix: Literal["recipe", "tf32"] = "recipe"
    message_bytes: float = 4  # of a number of a gradient in memory, as it is sent
    finds_forward: bool = False
    finds_backward: bool = False


OURS = Style()
NEO = Style("reduce_scatter", "neo", forward_bytes=2, backward_bytes=2, matrix="tf32", message_bytes=2)

# int8 has a scale of 4 bytes on each vector, int4 one of 2, sign one of 1: of 128 numbers, say.
SCALED = 1 + 4 / 128
NUMBER_BYTES: dict[WireFormat, float] = {
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "int8": SCALED,
    "int4": SCALED / 2,
    "sign": 17 / 128,
}


def style_of(recipe: Recipe) -> Style:
    """Our exchange, in the formats that a recipe says."""
    exchange, threshold = recipe.exchange, recipe.exchange.threshold
    return Style(
        forward_bytes=travelling_bytes(exchange.forward, threshold.forward),
        backward_bytes=travelling_bytes(exchange.backward, threshold.backward or threshold.forward),
        dense_bytes=NUMBER_BYTES[exchange.dense],
        message_bytes=NUMBER_BYTES[exchange.backward],
        finds_forward=threshold.forward is not None,
        finds_backward=threshold.backward is not None,
    )


def travelling_bytes(wire: WireFormat, threshold: Threshold | None) -> float:
    """Bytes that travel for each number: of the part that is sent in its format, and for each place a byte or a bit."""
    if threshold is None:
        return NUMBER_BYTES[wire]
    sent = 1 - threshold.sparsity
    return sent * NUMBER_BYTES[wire] + min(sent, 1 / 8)
