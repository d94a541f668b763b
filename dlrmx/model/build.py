"""The model that a recipe names, with its initial values.

Initial values follow facebookresearch/dlrm (dlrm_s_pytorch.py): a linear layer of m outputs and n inputs has
weights from N(0, 2 / (m + n)) and biases from N(0, 1 / m) (second argument: the variance). Cross layers, as in
TorchRec's LowRankCrossNet, have the same weights (Xavier's normal) and biases of zero.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn

from dlrmx.model.dcnv2 import CrossLayer, Dcnv2Model
from dlrmx.model.dlrm import DlrmModel
from dlrmx.recipe.schema import Dcnv2, Dlrm

Model = DlrmModel | Dcnv2Model


def build_model(model: Dlrm | Dcnv2, *, dense_dim: int, dims: Sequence[int], seed: int) -> Model:
    """The dense part of the model: forward(dense (B, dense_dim), pooled F x (B, dims[f])) -> logits (B,).

    It is `above` over the output of `bottom`, which is None where there are no dense columns.
    Every rank that passes the same arguments gets the same bits. `dense_dim` 0 leaves the bottom MLP out.
    """
    built: Model
    if isinstance(model, Dlrm):
        built = DlrmModel(
            bottom=model.bottom, top=model.top, dot=model.interaction == "dot", dense_dim=dense_dim, dims=dims
        )
    else:
        built = Dcnv2Model(
            bottom=model.bottom,
            top=model.top,
            cross_layers=model.cross_layers,
            cross_rank=model.cross_rank,
            dense_dim=dense_dim,
            dims=dims,
        )
    _initialise(built, seed)
    return built


@torch.no_grad()
def _initialise(built: nn.Module, seed: int) -> None:
    """Set every linear layer's values, in the order of the modules, from one generator."""
    generator = torch.Generator().manual_seed(seed)
    zero_bias = {layer.up for layer in built.modules() if isinstance(layer, CrossLayer)}
    for layer in built.modules():
        if isinstance(layer, nn.Linear):
            outputs, inputs = layer.weight.shape
            layer.weight.normal_(0.0, math.sqrt(2 / (outputs + inputs)), generator=generator)
            if layer in zero_bias:
                layer.bias.zero_()
            elif layer.bias is not None:
                layer.bias.normal_(0.0, math.sqrt(1 / outputs), generator=generator)
