"""The multilayer perceptron that both architectures use twice."""

from collections.abc import Sequence

from torch import nn


def mlp(inputs: int, widths: Sequence[int], *, last_relu: bool) -> nn.Sequential:
    """Linear layers `inputs` -> widths[0] -> ... -> widths[-1], ReLU between them, and after the last if asked.

    Maps (B, inputs) to (B, widths[-1]). The layers' values are torch's own until build.py sets them.
    """
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*(layers if last_relu else layers[:-1]))
