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
    forward_bytes, backward_bytes, dense_bytes: of one number of vectors, of their and of dense gradients, on its way;
    forward_scale, backward_scale: of what goes with each vector beside its numbers. place_bytes: of a
    vector's number in memory, to know which travelled forward.
    matrix: the recipe's precision, or TF32 for its fp32. finds_forward, finds_backward: which vectors have thresholds.
    """

    exchange: Literal["touched", "reduce_scatter"] = "touched"
    overlap: Literal["none", "neo"] = "none"
    forward_bytes: float = 4
    backward_bytes: float = 4
    dense_bytes: float = 4
    forward_scale: float = 0
    backward_scale: float = 0
    place_bytes: float = 0
    matrix: Literal["recipe", "tf32"] = "recipe"
    message_bytes: float = 4  # of a number of a gradient in memory, as it is sent
    finds_forward: bool = False
    finds_backward: bool = False


OURS = Style()
NEO = Style("reduce_scatter", "neo", forward_bytes=2, backward_bytes=2, matrix="tf32", message_bytes=2)

NUMBER_BYTES: dict[WireFormat, float] = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1, "int4": 1 / 2, "sign": 1 / 8}
# Of the scale on each vector, or on each so many numbers of the dense gradients.
SCALE_BYTES: dict[WireFormat, float] = {"fp32": 0, "fp16": 0, "bf16": 0, "int8": 4, "int4": 2, "sign": 1}
DENSE_ROW = 128  # 4 bytes of scale on 128 numbers of int8: 3%
PLACE_BYTES = 8  # int64, of an entry that travelled
FEWEST = 256  # a smaller parameter's gradient travels whole, thresholds or none
SEARCH_BYTES = 4 * 256 * 8  # of what ranks add up to find one threshold: counts of each byte of a number's four


def style_of(recipe: Recipe) -> Style:
    """Our exchange, in the formats that a recipe says."""
    exchange, threshold = recipe.exchange, recipe.exchange.threshold
    return Style(
        forward_bytes=travelling_bytes(exchange.forward, _sent(threshold.forward)),
        # Of what travelled forward, and there both ends know which entries those were.
        backward_bytes=_sent(threshold.forward) * travelling_bytes(exchange.backward, _sent(threshold.backward)),
        dense_bytes=NUMBER_BYTES[exchange.dense] + SCALE_BYTES[exchange.dense] / DENSE_ROW,
        forward_scale=SCALE_BYTES[exchange.forward],
        backward_scale=SCALE_BYTES[exchange.backward],
        message_bytes=NUMBER_BYTES[exchange.backward],
        place_bytes=PLACE_BYTES * _sent(threshold.forward) * any((threshold.forward, threshold.backward)),
        finds_forward=threshold.forward is not None,
        finds_backward=threshold.backward is not None,
    )


def _sent(threshold: Threshold | None) -> float:
    """The part of the entries that travels."""
    return 1.0 if threshold is None else 1 - threshold.sparsity


def travelling_bytes(wire: WireFormat, sent: float) -> float:
    """Bytes for each number of which a part `sent` travels: in its format, and for each place a byte or a bit."""
    return NUMBER_BYTES[wire] if sent == 1 else sent * NUMBER_BYTES[wire] + min(sent, 1 / 8)


def finding_bytes(threshold: Threshold | None, thresholds: int) -> float:
    """Bytes a step that ranks add up to find so many thresholds now and then."""
    if threshold is None or not threshold.sparsity:
        return 0.0
    return thresholds * SEARCH_BYTES / threshold.every
