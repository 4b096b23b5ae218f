"""Models: the ancestors' networks, torchvision's by name, and what is refused of a user's."""

from __future__ import annotations

import re
from collections import namedtuple
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from bench.config import RunConfig, UsageError
from bench.data import load_images
from bench.models import build_model, prepare, require_fit, require_pictures, require_scores
from bench.models.networks import ResNet9
from bench.train.checks import digest


def config(**fields: Any) -> RunConfig:
    return RunConfig(**{"backend": "ddp", "batch_per_rank": 4, "world_size": 2, **fields})


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
    model = build_model(config(model=name, image_size=size), classes)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == trained
    assert model(torch.zeros(2, 3, size, size)).shape == (2, classes)
    model = build_model(config(model=name, image_size=8, model_width=0.25), classes)
    model(torch.randn(4, 3, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert sum(p.numel() for p in model.parameters()) < trained / 3


def test_inception_bn_is_as_deep_and_wide_as_published() -> None:
    model = build_model(config(model="inception_bn", image_size=224), 1000)
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


def test_the_stem_of_resnet9_whitens_patches() -> None:
    asked = config(model="resnet9", dataset="digits", image_size=32)
    model, images = build_model(asked, 10), load_images(asked)
    assert isinstance(model, ResNet9)
    before = model.whiten.weight.clone()
    prepare(model, asked, images)
    assert not torch.equal(model.whiten.weight, before)
    coloured = torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    model.prepare_on_images(coloured.split(20))
    with torch.no_grad():
        out = torch.nn.functional.conv2d(coloured[:, :, 2:-2, 2:-2], model.whiten.weight)
    of_filters = out.transpose(0, 1).reshape(27, -1)
    found = of_filters @ of_filters.T / of_filters.shape[1]
    assert torch.allclose(found, torch.eye(27), atol=0.05), "unit variance, no correlation"


def test_ghost_batch_norm_is_batch_norm_of_each_part() -> None:
    model = build_model(config(model="resnet9"), 10)
    ghost = next(m for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    norms, x = [nn.BatchNorm2d(64) for _ in range(16)], torch.randn(32, 64, 4, 4)
    for _ in range(2):
        by_parts = torch.stack([norm(x[i::16]) for i, norm in enumerate(norms)], dim=1)
        assert torch.allclose(ghost(x), by_parts.reshape(x.shape), atol=1e-5)
    for name in ("running_mean", "running_var"):
        mean = torch.stack([getattr(norm, name) for norm in norms]).mean(0)
        assert torch.allclose(getattr(ghost, name), mean, atol=1e-5)
    small = x[:, :, :1, :1]  # one part: two numbers of a channel would normalise to 1 and -1
    assert torch.allclose(ghost(small), nn.BatchNorm2d(64)(small), atol=1e-5)
    assert torch.equal(ghost.eval()(x)[0], ghost(x[:1])[0])


def test_models_with_auxiliary_outputs_give_one() -> None:
    model = build_model(config(model="googlenet"), 10).train()
    assert model(torch.zeros(2, 3, 96, 96)).shape == (2, 10)


def test_weights_come_from_the_seed_and_the_digest_sees_one_bit() -> None:
    model, again, other = (
        build_model(config(model="tests.bench.tiny:plain", seed=seed), 10) for seed in (0, 0, 1)
    )
    before = digest(model)
    assert before == digest(again) != digest(other)
    with torch.no_grad():
        last = list(model.parameters())[-1]
        last[0] = torch.nextafter(last[0], torch.tensor(9.0))
    assert digest(model) != before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet51", "; did you mean 'resnet50'?"),
        ("tests.bench.tiny:nothing", "has no attribute 'nothing'"),
        ("builtins:str", "gave a str"),
        ("os:sep", "is a str, not a function"),
        ("tests.bench.tiny:idle", "has no parameter to train; give it one"),
    ],
)
def test_unknown_models_are_the_users_mistake(name: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        build_model(config(model=name), 10)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


class Kinds(nn.Module):
    """Parameters and buffers of several types; only float32 ones take another."""

    def __init__(self, classes: int, spectrum: bool = True) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, classes)
        complexes = torch.randn(3, dtype=torch.complex64)
        self.spectrum = nn.Parameter(complexes, requires_grad=spectrum)
        self.exact = nn.Parameter(torch.randn(2, dtype=torch.float64))
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool))


def frozen_kinds(classes: int) -> nn.Module:
    return Kinds(classes, spectrum=False)


def test_a_model_keeps_its_types_but_for_float32() -> None:
    model = build_model(config(model=f"{__name__}:frozen_kinds", precision="bf16"), 10)
    assert {name: tensor.dtype for name, tensor in model.state_dict().items()} == {
        **dict.fromkeys(("head.weight", "head.bias"), torch.bfloat16),
        "spectrum": torch.complex64,
        "exact": torch.float64,
        "mask": torch.bool,
    }


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x


class AsksThroughAMethod(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.joined(x)

    def joined(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Sum.apply(x)  # type: ignore[no-untyped-call]
        return result


class AsksInNoPass(nn.Linear):
    def gather_metrics(self, x: torch.Tensor) -> None:
        dist.all_reduce(x)


NAIVE = type("NaiveSyncBatchNorm", (nn.BatchNorm2d,), {})
OWN = type("OwnSync", (nn.SyncBatchNorm,), {})


@pytest.mark.parametrize(
    ("layer", "backend", "words"),
    [
        (OWN(4), "horovod", "0 (OwnSync) synchronises by one framework"),
        (NAIVE(4), "ddp", "0 (NaiveSyncBatchNorm) synchronises by one framework"),
        (nn.LazyLinear(3), "ddp", "0.weight has no shape before"),
        (AsksThroughAMethod(), "horovod", "0 (AsksThroughAMethod) uses torch.distributed"),
        (AsksInNoPass(2, 2), "ddp", ""),
        (nn.DataParallel(nn.Linear(2, 2)), "ddp", "0 (DataParallel) divides or exchanges by"),
        (Kinds(10), "horovod", "0.spectrum is complex64, which horovod cannot exchange"),
        (Kinds(10), "ddp", ""),
    ],
)
def test_what_would_not_be_equal_work_is_refused_by_name(
    layer: nn.Module, backend: str, words: str
) -> None:
    network = nn.Sequential(layer, nn.Linear(2, 2))
    start = f"^model='own.nets:make': {re.escape(words)}.*;"
    with pytest.raises(UsageError, match=start) if words else nullcontext():
        require_fit(network, config(backend=backend, model="own.nets:make"))


Outputs = namedtuple("Outputs", ["logits", "aux"])
SCORES = torch.zeros(4, 10, requires_grad=True)


@pytest.mark.parametrize(
    ("output", "came"),
    [
        (Outputs(SCORES, SCORES), "a Outputs of 2"),
        ({"logits": SCORES}, "a dict of 1"),
        (SCORES[:, :5], "[4, 5]"),
        (SCORES[:2], "[2, 10]"),
        (SCORES.argmax(1), "int64 [4]"),
        (SCORES.detach(), "scores without a gradient"),
    ],
)
def test_the_first_output_is_looked_at(output: Any, came: str) -> None:
    require_scores(SCORES, torch.arange(4), 10, config())
    with pytest.raises(UsageError, match=f"^model='resnet50' gave {re.escape(came)}"):
        require_scores(output, torch.arange(4), 10, config())


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.rand(2, 3, 8, 8), ""),
        # black, as normalised
        (torch.tensor([-2.0, 0.5]).view(1, 2, 1, 1).expand(2, 2, 8, 8), "are -2, 0.5, so nothing"),
        (torch.tensor([[[1.0, torch.nan]]]), "has pixels that are not finite"),
    ],
)
def test_labels_and_pictures_are_looked_at(images: torch.Tensor, words: str) -> None:
    with pytest.raises(UsageError, match="gave labels 7 to 10 for 10 classes"):
        require_scores(torch.cat([SCORES, SCORES], 1), torch.arange(7, 11), 10, config())
    with pytest.raises(UsageError, match=words) if words else nullcontext():
        require_pictures(images, config())
