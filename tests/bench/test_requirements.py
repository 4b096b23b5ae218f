"""The first look at the user's own code: what is refused by name, and what stays as it was."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn

from bench.config import RunConfig, UsageError
from bench.data import load_images
from bench.data.custom import Own
from bench.models import build_model
from bench.models.requirements import require_fit, require_pictures, require_scores

Outputs = namedtuple("Outputs", ["logits", "aux"])


def _mean_over_ranks(x: torch.Tensor) -> torch.Tensor:
    if dist.is_initialized():
        dist.all_reduce(x)
    return x


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return _mean_over_ranks(x)


class AsksThroughAMethod(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.joined(x)

    def joined(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Sum.apply(x)  # type: ignore[no-untyped-call]
        return result


class AsksInNoPass(nn.Linear):
    def gather_metrics(self, x: torch.Tensor) -> torch.Tensor:
        return _mean_over_ranks(x)


class NaiveSyncBatchNorm(nn.BatchNorm2d):
    pass


class OwnSync(nn.SyncBatchNorm):
    pass


class Kinds(nn.Module):
    """Parameters and buffers of many types and layouts; only float32 ones are trained."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, classes)
        self.turned = nn.Parameter(torch.randn(3, 5).t())
        self.spectrum = nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.exact = nn.Parameter(torch.randn(2, dtype=torch.float64))
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool))
        self.register_buffer("short", torch.ones(3, dtype=torch.float16))


def kinds(classes: int) -> nn.Module:
    return Kinds(classes)


def frozen_kinds(classes: int) -> nn.Module:
    network = Kinds(classes)
    network.spectrum.requires_grad_(False)
    return network


def tensors(network: nn.Module) -> dict[str, Any]:
    """Read type, layout and values of every parameter and buffer."""
    each = [*network.named_parameters(), *network.named_buffers()]
    return {name: (t.dtype, t.stride(), t.detach().tolist()) for name, t in each}


def config(**fields: Any) -> RunConfig:
    usual: dict[str, Any] = {"backend": "ddp", "batch_per_rank": 4, "world_size": 2}
    return RunConfig(**usual | fields)


def test_a_model_is_as_its_factory_made_it_but_for_a_type_asked_for_its_float32() -> None:
    place = "tests.bench.test_requirements"
    alone = RunConfig(batch_per_rank=4, model=f"{place}:kinds")
    torch.manual_seed(alone.seed)
    made = tensors(Kinds(10))
    assert tensors(build_model(alone, 10)) == made
    half = RunConfig(batch_per_rank=4, model=f"{place}:frozen_kinds", precision="bf16")
    types = {name: dtype for name, (dtype, *_) in tensors(build_model(half, 10)).items()}
    assert types["head.weight"] == types["turned"] == torch.bfloat16
    assert (types["spectrum"], types["exact"]) == (torch.complex64, torch.float64)
    assert (types["mask"], types["short"]) == (torch.bool, torch.float16)


@pytest.mark.parametrize(
    ("layer", "backend", "words"),
    [
        (nn.SyncBatchNorm(4), "ddp", "0 (SyncBatchNorm) synchronises by one framework"),
        (OwnSync(4), "horovod", "0 (OwnSync) synchronises by one framework"),
        (nn.LazyLinear(3), "ddp", "0.weight has no shape before"),
        (nn.Embedding(3, 4, sparse=True), "ddp", "0 (Embedding) makes sparse gradients"),
        (AsksThroughAMethod(), "horovod", "0 (AsksThroughAMethod) uses torch.distributed"),
        (AsksInNoPass(2, 2), "ddp", ""),
        (NaiveSyncBatchNorm(4), "ddp", "0 (NaiveSyncBatchNorm) synchronises by one framework"),
        (nn.DataParallel(nn.Linear(2, 2)), "ddp", "0 (DataParallel) divides or exchanges by"),
        (Kinds(10), "horovod", "0.spectrum is complex64, which horovod cannot exchange"),
        (Kinds(10), "ddp", ""),
        (nn.BatchNorm2d(4), "horovod", ""),
    ],
)
def test_what_would_not_be_equal_work_is_refused_by_name(
    layer: nn.Module, backend: str, words: str
) -> None:
    network = nn.Sequential(layer, nn.Linear(2, 2))
    if not words:
        require_fit(network, config(backend=backend))
        return
    with pytest.raises(UsageError) as caught:
        require_fit(network, config(backend=backend, model="own.nets:make"))
    assert str(caught.value).startswith(f"model='own.nets:make': {words}")
    assert ";" in str(caught.value)  # and a way out


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
    with pytest.raises(UsageError, match=r"^model='resnet50' gave ") as caught:
        require_scores(output, torch.arange(4), 10, config())
    assert f"gave {came}" in str(caught.value)


def test_labels_and_pictures_are_looked_at() -> None:
    require_scores(SCORES, torch.arange(4), 10, config())
    with pytest.raises(UsageError, match="gave labels 7 to 10 for 10 classes"):
        require_scores(torch.cat([SCORES, SCORES], 1), torch.arange(7, 11), 10, config())
    require_pictures(torch.rand(2, 3, 8, 8), config())
    black = torch.tensor([-2.0, -1.0, 0.5]).view(1, 3, 1, 1).expand(2, 3, 8, 8)  # as normalised
    with pytest.raises(UsageError, match=r"all pixels of the first batch are -2, -1, 0\.5, so"):
        require_pictures(black, config())
    with pytest.raises(UsageError, match="pixels that are not finite"):
        require_pictures(torch.tensor([[[1.0, torch.nan]]]), config())


def folder_of(root: Path, images: dict[str, Image.Image]) -> RunConfig:
    for name, image in images.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(root / name)
    fields: dict[str, Any] = {"dataset": "imagefolder", "data_dir": root, "batch_per_rank": 1}
    return RunConfig(**fields, augment=False, image_size=8)


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path: Path) -> None:
    grey = Image.fromarray(np.full((8, 8), 0x8040, np.uint16))
    set_of_two = folder_of(tmp_path, {"a/0.png": grey, "b/0.png": grey})
    images, _ = load_images(set_of_two).__getitems__([0])
    plain = Image.fromarray(np.full((8, 8), 0x80, np.uint8))
    (tmp_path / "eight").mkdir()
    of_eight = folder_of(tmp_path / "eight", {"a/0.png": plain, "b/0.png": plain})
    assert torch.equal(images, load_images(of_eight).__getitems__([0])[0])
    floats = Image.fromarray(np.ones((8, 8), np.float32))
    of_floats = folder_of(tmp_path / "f", {"a/0.tiff": floats, "b/0.tiff": floats})
    with pytest.raises(UsageError, match="mode F, whose range is not known"):
        load_images(of_floats).__getitems__([0])


def test_one_class_is_refused_and_one_level_too_high_is_told(tmp_path: Path) -> None:
    image = Image.fromarray(np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(UsageError, match="has one class"):
        load_images(folder_of(tmp_path / "one", {"a/0.png": image}))
    nested = folder_of(tmp_path / "two", {"x/a/0.png": image, "y/b/0.png": image})
    assert "one level too high" in load_images(nested).doubt  # type: ignore[attr-defined]
    flat = folder_of(tmp_path / "flat", {"x/0.png": image, "y/0.png": image})
    assert load_images(flat).doubt == ""  # type: ignore[attr-defined]


def test_a_set_that_cannot_be_pickled_is_told_before_a_process_is_spawned() -> None:
    class Local:
        classes = 2

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return torch.zeros(3, 8, 8), index % 2

    own = Own(config(dataset="own.sets:make", num_workers=2), Local())
    with pytest.raises(UsageError, match=r"num_workers=2 spawns processes.*--num-workers 0"):
        own.require_picklable()
