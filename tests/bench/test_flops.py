"""Operations of an image: by hand for small models, and a published number for ResNet-50."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bench import models
from bench.config import RunConfig
from bench.train import flops


class _Looks(nn.Module):
    """Goes by the values of its images, which stand-ins do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(192, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = images.flatten(1)
        scores: torch.Tensor = self.linear(x if x.sum() > 0 else -x)
        return scores


def config(**fields: object) -> RunConfig:
    values = {"batch_per_rank": 4, "image_size": 8, **fields}
    return RunConfig.model_validate(values)


def test_multiply_adds_count_as_two_forward_and_backward() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 10))
    # forward, weights' gradients, and of the second layer its input's
    by_hand = 2 * (2 * 192 * 16) + 3 * (2 * 16 * 10)
    assert flops.per_image(model, config()) == by_hand
    assert flops.per_image(model, config(batch_per_rank=8, accumulate=2)) == by_hand
    assert flops.per_image(_Looks(), config()) is None
    model[1].requires_grad_(False)
    # neither its own weights' gradient, nor that of what it hands on
    assert flops.per_image(model, config()) == by_hand - 2 * 192 * 16 - 2 * 16 * 10


def test_resnet_50_does_what_is_published() -> None:
    """4.09 G multiply-adds forward at 224 px (torchvision's documentation), and twice that back,
    but for the gradient of the images.
    """
    wanted = config(model="resnet50", image_size=224, batch_per_rank=2)
    network = models.build_model(wanted, 1000)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    random = torch.get_rng_state()
    first_layer = 2 * 112 * 112 * 64 * 3 * 7 * 7
    assert flops.per_image(network, wanted) == pytest.approx(6 * 4.09e9 - first_layer, rel=2e-3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(random, torch.get_rng_state())


def test_a_compiled_model_is_not_compiled_again() -> None:
    compiled = []

    def compiler(graph: torch.fx.GraphModule, _: object) -> object:
        compiled.append(graph)
        return graph.forward

    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    model.compile(backend=compiler)
    assert flops.per_image(model, config()) == 2 * (2 * 192 * 10)
    assert compiled == []
