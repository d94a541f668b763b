"""Building a model: the recipe's choices arrive, and initial values have the published distribution."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from dlrmx.model.build import build_model
from dlrmx.model.dcnv2 import CrossLayer, Dcnv2Model
from dlrmx.model.dlrm import DlrmModel
from dlrmx.recipe.schema import Dcnv2, Dlrm

DLRM = Dlrm(kind="dlrm", bottom=[512, 256, 64], top=[512, 256, 1])
DCNV2 = Dcnv2(kind="dcnv2", bottom=[512, 256, 64], top=[512, 256, 1], cross_layers=2, cross_rank=96)


def build(model: Dlrm | Dcnv2 = DLRM, **changes: Any) -> nn.Module:
    return build_model(model, **{"dense_dim": 13, "dims": [64] * 26, "seed": 0, **changes})


def test_each_kind_builds_its_model() -> None:
    assert isinstance(build(DLRM), DlrmModel)
    assert isinstance(build(DCNV2), Dcnv2Model)


@pytest.mark.parametrize("model", [DLRM, DCNV2], ids=["dlrm", "dcnv2"])
def test_initial_values_depend_on_the_seed_alone(model: Dlrm | Dcnv2) -> None:
    first = build(model).state_dict()
    torch.manual_seed(99)  # what torch's own generator holds must not matter
    again, other = build(model).state_dict(), build(model, seed=1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if name.endswith("weight"))


@pytest.mark.parametrize("model", [DLRM, DCNV2], ids=["dlrm", "dcnv2"])
def test_initial_values_have_the_published_spread(model: Dlrm | Dcnv2) -> None:
    for name, layer in build(model).named_modules():
        if not isinstance(layer, nn.Linear):
            continue
        outputs, inputs = layer.weight.shape
        _assert_normal(layer.weight, math.sqrt(2 / (outputs + inputs)))
        if name.startswith("cross"):
            assert not any(bias.any() for key, bias in layer.named_parameters() if key == "bias")
        elif outputs > 1:
            _assert_normal(layer.bias, math.sqrt(1 / outputs))


def _assert_normal(values: torch.Tensor, std: float) -> None:
    """Mean, spread and fourth moment of a normal distribution, each within five standard deviations."""
    count = values.numel()
    unit = values.detach().double() / std
    assert abs(unit.mean()) < 5 / math.sqrt(count)
    assert abs(unit.square().mean() - 1) < 5 * math.sqrt(2 / count)
    assert abs(unit.pow(4).mean() - 3) < 5 * math.sqrt(96 / count)


def test_parameters_of_the_kaggle_reference() -> None:
    """facebookresearch/dlrm, bench/dlrm_s_criteo_kaggle.sh: 13-512-256-64-16, 26 tables, (16 + 351)-512-256-1."""
    model = Dlrm(kind="dlrm", bottom=[512, 256, 64, 16], top=[512, 256, 1])
    assert _num_parameters(build(model, dims=[16] * 26)) == 475_985


def test_parameters_of_mlperf_v1() -> None:
    model = Dlrm(kind="dlrm", bottom=[512, 256, 128], top=[1024, 1024, 512, 256, 1])
    assert _num_parameters(build(model, dims=[128] * 26)) == 2_368_897


def _num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_only_parameters_are_saved() -> None:
    model = build()
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()


def test_cross_layers_have_the_asked_rank() -> None:
    layers = [layer for layer in build(DCNV2).modules() if isinstance(layer, CrossLayer)]
    assert [tuple(layer.down.weight.shape) for layer in layers] == [(96, 64 * 27)] * 2
