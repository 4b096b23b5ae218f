"""The contract, on real ranks: a backend trains as one process that averages shards' gradients."""

from __future__ import annotations

import functools
import os
import time
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.nn.functional import cross_entropy

from bench.backends.catalogue import CATALOGUE, parts
from bench.backends.ddp import Ddp
from bench.backends.protocol import Backend
from bench.config import RunConfig, parse_argv
from bench.config.fields import MOMENTUM
from bench.instrument import Observer, parity
from bench.instrument.parity import Gradients, mean, own_gradients
from bench.models import build_model
from bench.train.checks import digest
from bench.train.numbers import memory_format, parameter_dtype
from tests.bench.ranks import ROOT
from tests.bench.worker import DATA, Rank, attempt, on_ranks, shard

pytestmark = pytest.mark.ranks

STEPS = 12  # the rate rises over eight of them
PLAIN, NORMALISED, SOMETIMES = (
    f"tests.bench.tiny:{n}" for n in ("plain", "normalised", "sometimes")
)
VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float64": {"precision": "float64"},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "overlap off": {"overlap": "off"},
    "all together": {
        "precision": "bf16",
        "memory_format": "channels_last",
        "accumulate": 2,
        "clip_norm": 0.1,
    },
}
CASES = [(model, variant) for model in (PLAIN, NORMALISED) for variant in VARIANTS]
CASES += [(SOMETIMES, "unused parameters")]
VARIANTS["unused parameters"] = {"unused_parameters": True}
CELLS = [
    *[(f"{name}/mpi", "matched", 2) for name in ("ddp", "horovod", "handwritten", "ps")],
    *[(f"{name}/mpi", "shipped", 3) for name in ("ddp", "horovod")],
    *[(f"{name}/gloo", "shipped", 2) for name in ("ddp", "horovod")],
    ("fourth/gloo", "shipped", 2),  # a user's own
]


def configs(config: RunConfig) -> dict[tuple[str, str], RunConfig]:
    """Make the same run for every model and variant; a rising rate shows that schedules arrive."""
    common = {"base_lr": 1.0, "lr_warmup_steps": 8}
    row = CATALOGUE.get(config.backend)
    return {
        (model, name): config.model_copy(update={"model": model, **common, **VARIANTS[name]})
        for model, name in CASES
        if row is None or not row.refused.keys() & VARIANTS[name].items()
    }


class FirstGradients(Observer):
    """Keeps the first step's gradients as they are after the exchange."""

    def __init__(self, network: torch.nn.Module) -> None:
        self._network, self.kept = network, list[torch.Tensor | None]()

    def gradients_ready(self) -> None:
        if not self.kept:
            gradients = [p.grad for p in self._network.parameters()]
            self.kept = [None if g is None else g.clone() for g in gradients]


def train(rank: Rank, config: RunConfig) -> dict[str, Any]:
    """Train steps in the study's own loop, each rank from its own weights: rank 0's must win."""
    network = build_model(config.model_copy(update={"seed": config.seed + rank.number}), 10)
    first = FirstGradients(network)
    loop = rank.loop(config, network, first)
    for _ in range(STEPS):
        loop.step()
    return {
        "gradients": first.kept,
        "digests": rank.backend.gather(digest(network)),
        "parameters": [p.detach().clone() for p in network.parameters()],
        "exchange_bytes": loop.session.exchange_bytes(),
    }


def specification(config: RunConfig, order: list[int]) -> dict[str, Any]:
    """Train the same steps in plain torch; the shards' gradients are summed in `order`."""
    network, shards = build_model(config, 10), len(order)
    options: dict[str, Any] = {"momentum": MOMENTUM, "weight_decay": config.weight_decay}
    sgd = torch.optim.SGD(network.parameters(), lr=0.0, **options)
    rate = config.base_lr * config.samples_per_rank * shards / 256
    data, first = [shard(config, rank) for rank in range(shards)], list[Any]()
    for step in range(STEPS):
        sgd.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 8)
        each = []
        for rank in order:
            images, labels = next(data[rank])
            images = images.to(parameter_dtype(config), memory_format=memory_format(config))
            with patch.dict(os.environ, OMPI_COMM_WORLD_RANK=str(rank)):  # a model asks for it
                each.append(own_gradients(network, config, images, labels))
        for parameter, gradient in zip(network.parameters(), mean(each), strict=True):
            parameter.grad = gradient
        first = first or [None if p.grad is None else p.grad.clone() for p in network.parameters()]
        if config.clip_norm:
            torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
        sgd.step()
    parameters = [p.detach().clone() for p in network.parameters()]
    return {"gradients": first, "digest": digest(network), "parameters": parameters}


@functools.cache
def specified(model: str, variant: str, ranks: int, reverse: bool = False) -> dict[str, Any]:
    """Compute what the ranks must come to."""
    torch.set_num_threads(1)
    run = parse_argv([*DATA, "--backend", "ddp", "--world-size", str(ranks)])
    order = [*range(ranks)]
    return specification(configs(run)[model, variant], order[::-1] if reverse else order)


def outcome(rank: Rank) -> dict[Any, Any]:
    """Gather all that the tests ask of one backend with one kind of settings."""
    config, backend = rank.config, rank.backend
    result: dict[Any, Any] = {case: train(rank, c) for case, c in configs(config).items()}
    apart = config.model_copy(update={"model": NORMALISED, "exchange": "off"})
    alone = Rank(apart, Backend(), rank.number).loop(apart, network := build_model(apart, 10))
    for _ in range(STEPS):
        alone.step()
    result["exchange off"] = {**train(rank, apart), "plain": backend.gather(digest(network))}
    result["verbs"] = attempt(lambda: verbs(rank))
    if config.settings == "matched" and not CATALOGUE[config.backend].cuts_freely:
        for unused in (False, True):
            update = {"model": "resnet50", "image_size": 32, "batch_per_rank": 2}
            resnet = config.model_copy(update={**update, "unused_parameters": unused})
            loop = rank.loop(resnet, build_model(resnet, 1000))
            for _ in range(3):  # DDP rebuilds its buckets after the first, if it uses all
                loop.step()
            result["resnet50", unused] = loop.session.exchange_bytes()
    return result


def tensors(network: torch.nn.Module) -> dict[str, Any]:
    """Read type, layout and values of every parameter and buffer."""
    each = network.state_dict().items()
    return {name: (t.dtype, t.stride(), t.tolist()) for name, t in each}


def verbs(rank: Rank) -> None:
    """Call the small verbs with values that tell a sum from a maximum and rank 0 from the rest."""
    config, backend, number = rank.config, rank.backend, rank.number
    ranks = config.world_size
    network = build_model(config.model_copy(update={"model": NORMALISED, "seed": 7 + number}), 10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    session = backend.wrap(network, optimizer, config)
    assert not optimizer.state, "wrapping must not take a step"
    assert rank.equal(network), "rank 0's weights must win"
    session.model(torch.ones(2, 3, 8, 8)).sum().backward()
    session.synchronize_gradients()
    if config.settings == "matched":
        assert not session.broadcasts_buffers, "no framework sends more than another"
    with torch.no_grad():
        for buffer in network.buffers():
            buffer.fill_(number + 1)
    session.sync_buffers()
    buffers = [*network.buffers()]
    assert len(buffers) == 6
    assert all((b == 1).all() for b in buffers), "rank 0's buffers must win"
    session.zero_grad()
    assert all(p.grad is None for p in network.parameters())
    sums = {op: backend.reduce_scalar(number + 1, op) for op in ("sum", "max", "min")}
    assert sums == {"sum": ranks * (ranks + 1) / 2, "max": ranks, "min": 1}
    assert backend.reduce_scalar(1 / 3, "max") == 1 / 3, "scalars must travel in float64"
    objects = backend.gather({"rank": number, "text": "x" * number})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(ranks)]
    if number == 0:
        time.sleep(0.5)
    came = time.monotonic()  # one clock for all processes of this machine
    backend.barrier()
    times = backend.gather((came, time.monotonic()))
    assert min(left for _, left in times) >= max(each for each, _ in times), (
        "the barrier waits for all, and rank 0 came late"
    )
    kinds = config.model_copy(update={"model": "tests.bench.test_model:frozen_kinds"})
    before = tensors(network := build_model(kinds, 10))
    trained = [p for p in network.parameters() if p.requires_grad]
    backend.wrap(network, torch.optim.SGD(trained, lr=0.1), config)
    assert number or before == tensors(network), (
        "type, shape, layout and values of rank 0's tensors"
    )


@functools.cache
def outcomes(cell: str, settings: str, ranks: int) -> list[Any]:
    """Run one launch and return what became of it, by rank."""
    backend, transport = cell.split("/")
    words = ["--backend", backend, "--transport", transport, "--settings", settings]
    users = {"PYTHONPATH": str(ROOT / "tests" / "user")}
    return on_ranks(ranks, outcome, *words, extra=users)[0]


def relative(gradients: Gradients, expected: Gradients) -> float:
    """Find the largest over tensors of max|difference| / max|reference|."""
    return max(parity.relative(gradients, expected))


@pytest.mark.parametrize(("model", "variant"), CASES)
@pytest.mark.parametrize(("cell", "settings", "ranks"), CELLS)
def test_trains_as_one_process_that_averages_the_shards(
    cell: str, settings: str, ranks: int, model: str, variant: str
) -> None:
    got = outcomes(cell, settings, ranks)[0].get((model, variant))
    if got is None:
        assert CATALOGUE[parts(cell).backend].refused
        return
    want = specified(model, variant, ranks)
    assert len(got["digests"]) == ranks
    assert len(set(got["digests"])) == 1, "ranks ended with different parameters"
    assert len(got["gradients"]) == len(want["gradients"]) > 0
    if variant == "overlap off":
        # so it cannot begin before the last gradient is there, that of a shared layer included
        assert got["exchange_bytes"] == [sum(p.nbytes for p in got["parameters"])]
    if settings == "matched" and got["exchange_bytes"]:  # whatever type they travel in
        assert sum(got["exchange_bytes"]) == sum(p.nbytes for p in got["parameters"])
    # a sum of two and a division by two are exact in any order: all steps agree bit for bit
    if ranks == 2:
        assert got["digests"][0] == want["digest"]
        return
    fields = {"backend": "ddp", "world_size": ranks, "batch_per_rank": 4, **VARIANTS[variant]}
    rounding, _ = parity.tolerances(RunConfig(**fields))
    assert relative(got["gradients"], want["gradients"]) <= rounding
    if "bf16" not in str(VARIANTS[variant]):  # the last of eight bits moves a weight too far
        # beyond one step the order of summation makes trajectories part: drift is held against
        # that of the specification summed in another order, which is as legitimate
        drift = relative(got["parameters"], want["parameters"])
        other = specified(model, variant, ranks, reverse=True)["parameters"]
        assert drift <= max(100 * relative(other, want["parameters"]), rounding)


@pytest.mark.parametrize(("cell", "settings", "ranks"), CELLS)
def test_without_batchnorm_it_is_the_gradient_of_the_joined_batch(
    cell: str, settings: str, ranks: int
) -> None:
    run = parse_argv([*DATA, "--backend", "ddp", "--world-size", str(ranks)])
    batches = [next(shard(run, rank)) for rank in range(ranks)]
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))

    def joined(model: str) -> Gradients:
        network = build_model(run.model_copy(update={"model": model}), 10)
        loss = cross_entropy(network(images), labels)
        return list(torch.autograd.grad(loss, list(network.parameters())))

    got = outcomes(cell, settings, ranks)[0]
    assert relative(got[PLAIN, "float32"]["gradients"], joined(PLAIN)) <= 1e-5
    # BatchNorm sees its own shard only, so there it must differ: the comparison can fail
    assert relative(got[NORMALISED, "float32"]["gradients"], joined(NORMALISED)) > 1e-3


@pytest.mark.parametrize(("cell", "settings", "ranks"), CELLS)
def test_small_verbs_and_training_apart(cell: str, settings: str, ranks: int) -> None:
    by_rank = outcomes(cell, settings, ranks)
    assert [each["verbs"] for each in by_rank] == [""] * ranks
    apart = by_rank[0]["exchange off"]
    assert apart["digests"] == apart["plain"], "every rank trains by its shard alone"
    assert len(set(apart["digests"])) == ranks
    assert apart["exchange_bytes"] == []


def test_matched_settings_exchange_equal_bytes() -> None:
    """ResNet-50 at the 25 MiB cap: DDP's buckets are those that Horovod is given."""
    ddp, horovod = (outcomes(f"{b}/mpi", "matched", 2)[0] for b in ("ddp", "horovod"))
    for unused, mib in (
        (False, [28.855, 25.039, 27.053, 16.545]),
        (True, [11.836, 30.043, 30.547, 25.067]),
    ):
        sizes = ddp["resnet50", unused]
        assert sizes == horovod["resnet50", unused]
        assert [round(size / 2**20, 3) for size in sizes] == mib


@pytest.mark.parametrize("left_out", ["wrap", "reduce_scalar", "gather", "barrier", "close"])
def test_a_backend_that_leaves_a_verb_out_is_refused(left_out: str) -> None:
    """It would be measured with that of one process: without a barrier, say."""
    verbs = {name: getattr(Ddp, name) for name in vars(Backend) if not name.startswith("_")}
    assert issubclass(type("Whole", (Backend,), dict(verbs)), Backend)
    del verbs[left_out]
    with pytest.raises(TypeError, match=f"Half has no {left_out} of its own"):
        type("Half", (Backend,), verbs)
