"""The MLP's layers."""

import pytest
from torch import nn

from dlrmx.model.mlp import mlp


@pytest.mark.parametrize("last_relu", [True, False])
def test_layers(last_relu: bool) -> None:
    layers = list(mlp(3, [8, 4, 1], last_relu=last_relu))
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(3, 8), (8, 4), (4, 1)]
    kinds = [type(layer) for layer in layers]
    assert kinds == ([nn.Linear, nn.ReLU] * 3)[: 6 if last_relu else 5]
