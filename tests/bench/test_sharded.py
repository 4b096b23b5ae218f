"""What a backend divides over its ranks is divided, and parity sees a wrong mean of the parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.config import UsageError, make_config
from bench.record import read_run
from tests.bench.ranks import bench, mpirun, run, thorough

WORKER = """
import os, sys
from bench import backends
from bench.config import make_config
from bench.instrument.parity import Parity
from bench.launch import world
from bench.models import build_model
from bench.train import device
from tests.bench.contract_worker import make_loop

backend, transport, factor = sys.argv[1:]
shared = {"dataset": "digits", "image_size": 8, "batch_per_rank": 4, "world_size": 2}
shared |= {"model": "tests.bench.tiny:normalised", "backend": backend, "transport": transport}
config = make_config(shared)
launch = world.discover(os.environ)
backend = backends.load(config, launch, device.choose(config, launch))
network = build_model(config, 10)
all_numbers = sum(p.numel() for p in network.parameters())
parity = Parity(config, backend, network, (1,))
loop = make_loop(config, backend, network, launch.rank, parity)
if factor != "1" and launch.rank == 0:
    loop.session.synchronize_gradients = lambda: [
        p.grad.to_local().mul_(float(factor)) for p in network.parameters()
    ]
loop.step()
loop.step()
optimizer = loop.session.optimizer
held = [one["momentum_buffer"] for one in getattr(optimizer, "optim", optimizer).state.values()]
numbers = sum((t.to_local() if hasattr(t, "to_local") else t).numel() for t in held)
if launch.rank == 0:
    print("all", all_numbers)
    print("parity", int(parity.holds))
print("held", numbers)
del loop, optimizer, held
backend.close()
"""


@pytest.mark.ranks
@pytest.mark.parametrize("cell", ["fsdp2/gloo", "zero1/mpi"])
def test_a_run_comes_to_a_good_end(cell: str, tmp_path: Path) -> None:
    backend, transport = cell.split("/")
    log = tmp_path / "run.jsonl"
    words = ["--backend", backend, "--transport", transport, "--world-size", "2"]
    words += ["--model", "tests.bench.tiny:normalised", "--dataset", "digits", "--image-size", "8"]
    words += ["--batch-per-rank", "4", "--windows", "2", "--steps-per-window", "2"]
    done = bench(2, *words, "--warmup-steps", "3", "--log-path", str(log))
    assert done.returncode == 0, done.stderr
    assert read_run(log).state == "ok"
    assert '"ok": true' in done.stdout


def outcome(backend: str, transport: str, factor: str = "1") -> dict[str, list[int]]:
    """What two ranks print after two steps, by name."""
    done = run(mpirun(2, "-c", WORKER, backend, transport, factor))
    assert done.returncode == 0, done.stderr
    printed: dict[str, list[int]] = {}
    for line in done.stdout.splitlines():
        name, number = line.split()
        printed.setdefault(name, []).append(int(number))
    return printed


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("backend", "transport", "is_divided"),
    [
        ("ddp", "gloo", False),
        thorough("zero1", "gloo", True),
        ("zero1", "mpi", True),
        ("fsdp2", "gloo", True),
    ],
)
def test_the_state_of_the_optimiser_is_divided(
    backend: str, transport: str, is_divided: bool
) -> None:
    printed = outcome(backend, transport)
    (whole,), held = printed["all"], printed["held"]
    assert printed["parity"] == [1]
    assert len(held) == 2
    if is_divided:
        assert sum(held) == whole
        assert max(held) < 0.75 * whole
    else:
        assert held == [whole] * 2


@pytest.mark.ranks
def test_parity_sees_that_one_rank_has_other_parts() -> None:
    assert outcome("fsdp2", "gloo", "1.001")["parity"] == [0]


@pytest.mark.parametrize(
    ("backend", "fields"),
    [
        ("fsdp2", {"epochs": 2}),
        ("fsdp2", {"observe": "breakdown"}),
        ("fsdp2", {"memory_format": "channels_last"}),
        ("zero1", {"epochs": 2, "checkpoint": True}),
    ],
)
def test_what_it_cannot_do_is_refused(backend: str, fields: dict[str, Any]) -> None:
    name, value = list(fields.items())[-1]
    shared = {"backend": backend, "transport": "gloo", "dataset": "digits", "batch_per_rank": 4}
    with pytest.raises(UsageError, match=f"^{name}={value}: "):
        make_config({**shared, **fields})
