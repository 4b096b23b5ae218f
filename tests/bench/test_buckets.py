"""Bucket lists are torch's own."""

from __future__ import annotations

import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.backends.buckets import buckets
from bench.backends.handwritten import Bucket

MIB = 2**20


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 3 * MIB // 4), min_size=1, max_size=40),
    st.integers(1, 8 * MIB),
    st.booleans(),
)
def test_any_sizes_and_limit(elements: list[int], bucket_bytes: int, rebuilt: bool) -> None:
    tensors = [torch.empty(n, device="meta", requires_grad=True) for n in elements]
    order = tensors[::-1] if rebuilt else tensors
    assigned, _ = dist._compute_bucket_assignment_by_size(order, [bucket_bytes])
    in_order = [[id(order[place]) for place in bucket] for bucket in assigned]
    want = in_order if rebuilt else [bucket[::-1] for bucket in in_order[::-1]]
    assert [[id(t) for t in b] for b in buckets(tensors, bucket_bytes, rebuilt)] == want


def test_frozen_ones_are_left_out_and_a_limit_of_zero_is_one_for_each() -> None:
    layers = [torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)]
    parameters = [p for layer in layers for p in layer.parameters()]
    parameters[0].requires_grad_(False)
    assert [[p.nbytes for p in b] for b in buckets(parameters, 16)] == [[4, 12], [12]]
    assert len(buckets(parameters, 0)) == 3


def test_a_bucket_of_several_types_rounds_none_of_them() -> None:
    single, double = (
        torch.nn.Parameter(torch.ones(1, dtype=t)) for t in (torch.float, torch.double)
    )
    single.grad, double.grad = torch.ones_like(single), torch.full_like(double, 1 / 3)
    bucket = Bucket([single, double])
    bucket.fill(ranks=1)
    double.grad.zero_()
    bucket.hand_out()
    assert double.grad.item() == 1 / 3
