"""DLRM's forward pass against loops over samples and pairs."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from dlrmx.model.dlrm import DlrmModel, DotInteraction


def dense_and_pooled(dense_dim: int, dims: Sequence[int], batch: int = 5) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(batch, dense_dim, generator=generator)
    return dense, [torch.randn(batch, dim, generator=generator) for dim in dims]


def test_pairs_come_in_the_reference_order() -> None:
    vectors = torch.tensor([[[1.0, 0.0], [2.0, 1.0], [3.0, 5.0]]])  # one sample, three vectors
    # (1, 0), (2, 0), (2, 1): 2*1 + 1*0, 3*1 + 5*0, 3*2 + 5*1
    assert DotInteraction(3)(vectors).tolist() == [[2.0, 3.0, 11.0]]


def test_gradients_of_pairs_are_those_of_finite_differences() -> None:
    vectors = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(DotInteraction(4), vectors.requires_grad_())


def test_autocast_multiplies_pairs_in_its_own_format() -> None:
    vectors = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        products = DotInteraction(4)(vectors)
    products.float().sum().backward()
    assert products.dtype == torch.bfloat16
    assert vectors.grad is not None
    # The gradient of the sum of all pairs' products: the sum of all vectors but one.
    torch.testing.assert_close(vectors.grad, (vectors.sum(1, keepdim=True) - vectors).detach(), atol=0.05, rtol=0.05)


@pytest.mark.parametrize("dense_dim", [3, 0])
def test_dot(dense_dim: int) -> None:
    model = DlrmModel(bottom=[7, 4], top=[6, 1], dot=True, dense_dim=dense_dim, dims=[4, 4, 4])
    dense, pooled = dense_and_pooled(dense_dim, [4, 4, 4])
    logits = model(dense, pooled)
    assert logits.shape == (5,)
    for sample in range(5):
        vectors = [vector[sample] for vector in pooled]
        start = []
        if model.bottom is not None:
            start = [_relu_layers(model.bottom, dense[sample])]
        vectors = start + vectors
        products = [
            (vectors[one] * vectors[other]).sum().reshape(1) for one in range(len(vectors)) for other in range(one)
        ]
        wanted = model.top(torch.cat(start + products))
        torch.testing.assert_close(logits[sample : sample + 1], wanted)


def _relu_layers(layers: torch.nn.Sequential, x: Tensor) -> Tensor:
    for layer in layers:
        if isinstance(layer, torch.nn.Linear):
            x = (layer.weight @ x + layer.bias).clamp(min=0)  # ReLU after each layer of the bottom, the last one too
    return x


@pytest.mark.parametrize("dense_dim", [3, 0])
def test_cat(dense_dim: int) -> None:
    model = DlrmModel(bottom=[7, 5], top=[6, 1], dot=False, dense_dim=dense_dim, dims=[4, 8])
    dense, pooled = dense_and_pooled(dense_dim, [4, 8])
    start = [] if model.bottom is None else [torch.stack([_relu_layers(model.bottom, row) for row in dense])]
    torch.testing.assert_close(model(dense, pooled), model.top(torch.cat(start + pooled, dim=1)).squeeze(1))


def test_the_top_has_relu_between_its_layers_only() -> None:
    model = DlrmModel(bottom=[4], top=[6, 5, 1], dot=True, dense_dim=2, dims=[4])
    kinds = [type(layer).__name__ for layer in model.top]
    assert kinds == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]


def test_gradients_reach_every_input_and_parameter() -> None:
    model = DlrmModel(bottom=[7, 4], top=[6, 1], dot=True, dense_dim=3, dims=[4, 4]).double()
    dense, pooled = dense_and_pooled(3, [4, 4])
    leaves = [tensor.double().requires_grad_() for tensor in pooled]
    assert torch.autograd.gradcheck(lambda *vectors: model(dense.double(), vectors), leaves)


def test_an_empty_batch() -> None:
    model = DlrmModel(bottom=[4], top=[1], dot=True, dense_dim=2, dims=[4])
    assert model(torch.zeros(0, 2), [torch.zeros(0, 4)]).shape == (0,)


def test_dims_that_differ_cannot_be_multiplied() -> None:
    with pytest.raises(AssertionError, match="one dim"):
        DlrmModel(bottom=[4], top=[1], dot=True, dense_dim=2, dims=[4, 8])


def test_one_vector_alone_has_nothing_to_interact_with() -> None:
    with pytest.raises(AssertionError, match="nothing to interact"):
        DlrmModel(bottom=[4], top=[1], dot=True, dense_dim=0, dims=[4])
