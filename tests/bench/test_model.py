"""Models: torchvision's by name, the user's by factory, both from the seed."""

from __future__ import annotations

import pytest
import torch

from bench.config import RunConfig, UsageError
from bench.config.fields import NETWORKS
from bench.data import load_images
from bench.models import build_model, prepare
from bench.models.resnet9 import ResNet9
from bench.train.checks import digest

PUBLISHED = {  # name: image size, classes, parameters that are trained, as counted by hand
    # 3x3 from 3 colours, 7 x (1x1, 3x3, 1x1), linear; each convolution with scale and shift
    "resnet23": (32, 10, 27 * 64 + 128 + 7 * (4 * 32 * 64 + 9 * 32 * 32 - 4096 + 256) + 650),
    # weights, then a bias and a shift for each channel after a convolution, then the linear layer
    "inception_bn_28": (28, 10, 1_644_320 + 2 * 1712 + 3370),
    "resnet9": (32, 10, 6_563_520 + 5120 + 2240),  # convolutions, linear layer, shifts
    "mlp": (32, 32, 1024 * 256 + 2 * 256 * 256 + 256 * 32),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_ancestors_networks_have_their_published_size(name: str) -> None:
    size, classes, trained = PUBLISHED[name]
    model = build_model(RunConfig(batch_per_rank=2, model=name, image_size=size), classes)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == trained
    assert model(torch.zeros(2, 3, size, size)).shape == (2, classes)


def test_inception_bn_is_as_deep_and_wide_as_published() -> None:
    model = build_model(RunConfig(batch_per_rank=1, model="inception_bn", image_size=224), 1000)
    seen: list[tuple[int, int]] = []
    for layer in model.children():
        layer.register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape[1:3])))
    model.eval()(torch.zeros(1, 3, 224, 224))
    # channels and edge after each of the ten blocks (Ioffe & Szegedy 2015, figure 5)
    assert seen[5:15] == [
        *((256, 28), (320, 28), (576, 14)),
        *((576, 14), (576, 14), (608, 14), (608, 14), (1056, 7)),
        *((1024, 7), (1024, 7)),
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_narrow_network_trains_on_small_images(name: str) -> None:
    config = RunConfig(batch_per_rank=4, model=name, image_size=8, model_width=0.25)
    model = build_model(config, 10)
    whole = build_model(config.model_copy(update={"model_width": 1.0}), 10)
    model(torch.randn(4, 3, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    sizes = [sum(p.numel() for p in m.parameters()) for m in (model, whole)]
    assert sizes[0] < sizes[1] / 3


def test_the_stem_of_resnet9_whitens_patches() -> None:
    config = RunConfig(batch_per_rank=4, model="resnet9", dataset="digits", image_size=32)
    model, images = build_model(config, 10), load_images(config)
    assert isinstance(model, ResNet9)
    before = model.whiten.weight.clone()
    prepare(model, config, images)
    assert not torch.equal(model.whiten.weight, before)
    coloured = torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    model.prepare_on_images(coloured.split(20))
    with torch.no_grad():
        out = torch.nn.functional.conv2d(coloured[:, :, 2:-2, 2:-2], model.whiten.weight)
    of_filters = out.transpose(0, 1).reshape(27, -1)
    found = of_filters @ of_filters.T / of_filters.shape[1]
    assert torch.allclose(found, torch.eye(27), atol=0.05), "unit variance, no correlation"


def test_ghost_batch_norm_is_batch_norm_of_each_part() -> None:
    config = RunConfig(batch_per_rank=32, model="resnet9")
    model = build_model(config, 10)
    ghost = next(m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d))
    norms, x = [torch.nn.BatchNorm2d(64) for _ in range(16)], torch.randn(32, 64, 4, 4)
    for _ in range(2):
        by_parts = torch.stack([norm(x[i::16]) for i, norm in enumerate(norms)], dim=1)
        assert torch.allclose(ghost(x), by_parts.reshape(x.shape), atol=1e-5)
    for name in ("running_mean", "running_var"):
        mean = torch.stack([getattr(norm, name) for norm in norms]).mean(0)
        assert torch.allclose(getattr(ghost, name), mean, atol=1e-5)
    small = x[:, :, :1, :1]  # one part: two numbers of a channel would normalise to 1 and -1
    assert torch.allclose(ghost(small), torch.nn.BatchNorm2d(64)(small), atol=1e-5)
    assert torch.equal(ghost.eval()(x)[0], ghost(x[:1])[0])


def test_models_with_auxiliary_outputs_give_one() -> None:
    model = build_model(RunConfig(batch_per_rank=2, model="googlenet"), 10).train()
    assert model(torch.zeros(2, 3, 96, 96)).shape == (2, 10)


def test_weights_come_from_the_seed_and_the_digest_sees_one_bit() -> None:
    config = RunConfig(batch_per_rank=1, model="tests.bench.tiny:plain")
    other, model = config.model_copy(update={"seed": 1}), build_model(config, 10)
    before = digest(model)
    assert before == digest(build_model(config, 10)) != digest(build_model(other, 10))
    with torch.no_grad():
        last = list(model.parameters())[-1]
        last[0] = torch.nextafter(last[0], torch.tensor(9.0))
    assert digest(model) != before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet51", "near: resnet50"),
        ("fasterrcnn_resnet50_fpn", "no torchvision classification model"),
        ("tests.bench.tiny:nothing", "has no attribute 'nothing'"),
        ("builtins:str", "gave a str"),
        ("..:x", "give package.module:factory"),
        ("os:sep", "is a str, not a function"),
        ("os:getcwd", "called with one argument, failed (TypeError: "),
        ("tests.bench.tiny:idle", "has no parameter to train; give it one"),
    ],
)
def test_unknown_models_are_the_users_mistake(name: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        build_model(RunConfig(batch_per_rank=1, model=name), 10)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
