"""DCNv2's forward pass against its formula, sample by sample."""

import pytest
import torch

from dlrmx.model.dcnv2 import CrossLayer, Dcnv2Model


def test_a_cross_layer_by_hand() -> None:
    layer = CrossLayer(2, 1)
    with torch.no_grad():
        layer.down.weight.copy_(torch.tensor([[1.0, 2.0]]))  # V
        layer.up.weight.copy_(torch.tensor([[3.0], [4.0]]))  # W
        layer.up.bias.copy_(torch.tensor([0.5, -1.0]))
    first, x = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, -1.0]])
    # V x = -1; W V x + b = (-2.5, -5); times x_0 = (-5, -15); plus x = (-4, -16)
    assert layer(first, x).tolist() == [[-4.0, -16.0]]


@pytest.mark.parametrize("autocast", [False, True])
def test_a_cross_layer_has_the_gradients_of_its_formula_in_every_bit(autocast: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    layer, one, other = CrossLayer(6, 2), *torch.randn(2, 5, 6, generator=generator).unbind()
    found = []
    for by_formula in (False, True):
        first, x = one.clone().requires_grad_(), other.clone().requires_grad_()
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            crossed = torch.addcmul(x, first, layer.up(layer.down(x))) if by_formula else layer(first, x)
        (crossed.float() ** 2).sum().backward()
        leaves = [first, x, *layer.parameters()]
        found.append([crossed.detach(), *(leaf.grad.clone() for leaf in leaves if leaf.grad is not None)])
    assert len(found[0]) == 6
    for left, right in zip(*found, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("dense_dim", [3, 0])
def test_forward(dense_dim: int) -> None:
    model = Dcnv2Model(bottom=[7, 5], top=[6, 1], cross_layers=3, cross_rank=2, dense_dim=dense_dim, dims=[4, 8])
    model.double()
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(5, dense_dim, generator=generator, dtype=torch.float64)
    pooled = [torch.randn(5, dim, generator=generator, dtype=torch.float64) for dim in (4, 8)]
    logits = model(dense, pooled)
    assert logits.shape == (5,)
    for sample in range(5):
        start = [] if model.bottom is None else [model.bottom(dense[sample])]
        first = x = torch.cat([*start, *(vector[sample] for vector in pooled)])
        for layer in model.cross:
            assert isinstance(layer, CrossLayer)
            x = first * (layer.up.weight @ (layer.down.weight @ x) + layer.up.bias) + x
        torch.testing.assert_close(logits[sample : sample + 1], model.top(x))


def test_the_bottom_ends_in_a_relu_and_the_top_in_a_logit() -> None:
    model = Dcnv2Model(bottom=[7, 5], top=[6, 1], cross_layers=1, cross_rank=2, dense_dim=3, dims=[4])
    assert model.bottom is not None
    assert isinstance(model.bottom[-1], torch.nn.ReLU)
    assert isinstance(model.top[-1], torch.nn.Linear)
