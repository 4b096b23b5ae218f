"""Bucket lists are torch's own: of its function, and of a wrapped model after three steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from bench.backends.buckets import buckets, cut, limits
from bench.config import parse_argv
from bench.instrument import timeline
from bench.models import build_model

MIB = 2**20
TIMELINES = Path(timeline.__file__).parent / "timelines"


def of_torch(tensors: list[torch.Tensor], limits_bytes: tuple[int, ...]) -> list[list[int]]:
    assigned, _ = dist._compute_bucket_assignment_by_size(tensors, [*limits_bytes])
    return [list(bucket) for bucket in assigned]


MODELS = ("resnet50", "vgg16", "inception_v3", "resnet23")


@pytest.mark.parametrize("cap_mib", [None, 25, 1, 0.5])
@pytest.mark.parametrize("model", MODELS)
def test_models_are_cut_as_torch_cuts_them(model: str, cap_mib: float | None) -> None:
    words = ["--world-size", "1", "--batch-per-rank", "1", "--image-size", "299"]
    with torch.device("meta"):
        network = build_model(parse_argv([*words, "--model", model]), 1000)
    tensors: list[torch.Tensor] = list(reversed(list(network.parameters())))
    places = [list(bucket) for bucket in cut([t.nbytes for t in tensors], limits(cap_mib))]
    assert places == of_torch(tensors, limits(cap_mib))


def test_resnet50_in_its_recorded_order() -> None:
    """The default is not an explicit cap of 25 MiB, whose first bucket is no smaller."""
    recorded, _ = timeline.read(TIMELINES / "resnet50-xeon-32px.json")
    sizes = [gradient.bytes for gradient in recorded.gradients]

    def in_mib(cap_mib: float | None) -> list[float]:
        return [sum(sizes[i] for i in b) / MIB for b in cut(sizes, limits(cap_mib))]

    assert in_mib(None) == pytest.approx([7.82, 30.04, 25.04, 25.32, 9.27], abs=0.006)
    assert in_mib(25) == pytest.approx([28.86, 25.04, 27.05, 16.55], abs=0.006)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 3 * MIB // 4), min_size=1, max_size=40),
    st.lists(st.integers(1, 8 * MIB), min_size=1, max_size=3),
)
def test_any_sizes_and_limits(elements: list[int], limits_bytes: list[int]) -> None:
    tensors: list[torch.Tensor] = [torch.empty(n, device="meta") for n in elements]
    places = [list(bucket) for bucket in cut([t.nbytes for t in tensors], limits_bytes)]
    assert places == of_torch(tensors, tuple(limits_bytes))
    assert [i for bucket in places for i in bucket] == [*range(len(elements))]


@pytest.mark.parametrize("cap_mib", [None, 25, 1])
def test_a_users_model_as_it_is_really_wrapped(cap_mib: int | None) -> None:
    layers = [torch.nn.Linear(*shape) for shape in ((900, 3000), (3000, 1000), (1000, 300))]
    model = torch.nn.Sequential(*layers)
    order: list[int] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: order.append(p.nbytes))
    model(torch.ones(1, 900)).sum().backward()
    arrived = [*order]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=cap_mib)
        for _ in range(3):
            wrapped(torch.ones(1, 900)).sum().backward()
        facts = wrapped._get_ddp_logging_data()["rebuilt_bucket_sizes"]
        del wrapped
    finally:
        dist.destroy_process_group()
    expected = [sum(arrived[i] for i in bucket) for bucket in cut(arrived, limits(cap_mib))]
    assert [int(size) for size in facts.split(", ")] == expected


def test_by_hand_parameters_are_cut_from_the_last() -> None:
    layers = [torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)]
    parameters = [p for layer in layers for p in layer.parameters()]
    parameters[0].requires_grad_(False)
    assert [[p.nbytes for p in b] for b in buckets(parameters, 16)] == [[4, 12], [12]]
    assert len(list(buckets(parameters, 0))) == 3, "each by itself"
    assert list(buckets([], 16)) == []
