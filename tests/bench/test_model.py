"""Models: torchvision's by name, the user's by factory, both from the seed."""

from __future__ import annotations

import pytest
import torch

from bench.config import RunConfig, UsageError
from bench.models import build_model
from bench.train.checks import digest


def test_resnet50_has_its_published_size() -> None:
    model = build_model(RunConfig(batch_per_rank=1), 1000)
    assert sum(p.numel() for p in model.parameters()) == 25_557_032  # torchvision's table


def test_a_model_of_ones_own() -> None:
    config = RunConfig(batch_per_rank=1, model="tests.bench.tiny:normalised", precision="float64")
    model = build_model(config, 10)
    assert model(torch.zeros(2, 3, 32, 32, dtype=torch.float64)).shape == (2, 10)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_models_with_auxiliary_outputs_give_one(name: str) -> None:
    model = build_model(RunConfig(batch_per_rank=2, model=name), 10).train()
    assert model(torch.zeros(2, 3, 96, 96)).shape == (2, 10)


def test_weights_come_from_the_seed() -> None:
    config = RunConfig(batch_per_rank=1, model="tests.bench.tiny:plain")
    other = config.model_copy(update={"seed": 1})
    assert digest(build_model(config, 10)) == digest(build_model(config, 10))
    assert digest(build_model(config, 10)) != digest(build_model(other, 10))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet51", "near: resnet50"),
        ("fasterrcnn_resnet50_fpn", "no torchvision classification model"),
        ("tests.bench.tiny:nothing", "has no attribute 'nothing'"),
        ("tests.bench.nowhere:net", "No module named"),
        (":net", "package.module:factory"),
        ("builtins:str", "gave a str"),
        ("..:x", "give package.module:factory"),
        (".x:y", "give package.module:factory"),
        ("os:sep", "is a str, not a function"),
        ("os:getcwd", "called with one argument, failed (TypeError: "),
        ("tests.bench.tiny:", "has no attribute ''"),
        ("tests.bench.tiny:idle", "has no parameter to train; use --loader-only"),
    ],
)
def test_unknown_models_are_the_users_mistake(name: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        build_model(RunConfig(batch_per_rank=1, model=name), 10)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_digest_sees_one_bit() -> None:
    model = build_model(RunConfig(batch_per_rank=1, model="tests.bench.tiny:plain"), 10)
    before = digest(model)
    with torch.no_grad():
        last = list(model.parameters())[-1]
        last[0] = torch.nextafter(last[0], torch.tensor(9.0))
    assert digest(model) != before
