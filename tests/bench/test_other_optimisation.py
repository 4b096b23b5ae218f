"""Backends that take no mean: what they send and apply, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.config import UsageError, make_config
from bench.record import Run, read_run
from bench.tools import parity
from bench.tools.doctor import options as doctor
from slurm.load import read_site
from tests.bench.ranks import bench, mpirun, run
from tests.slurm.scripts import shipped

SHARED = {"dataset": "digits", "batch_per_rank": 4, "world_size": 2}
DIGITS = ("--model", "mlp", "--dataset", "digits", "--image-size", "8", "--batch-per-rank", "8")
SHORT = ("--world-size", "2", "--warmup-steps", "3", "--windows", "2", "--steps-per-window", "3")
OVER_TCP = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1"}

WORKER = """
import json, os
import torch
from bench import backends
from bench.config import make_config
from bench.launch import world
from bench.train import device

config = make_config({"backend": "adasum", "world_size": 2, "batch_per_rank": 4})
launch = world.discover(os.environ)
backend = backends.load(config, launch, device.choose(config, launch))
torch.manual_seed(launch.rank)  # rank 0's parameters must reach rank 1
network = torch.nn.Linear(5, 3)
images = torch.randn(4, 5)
optimizer = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
session = backend.wrap(network, optimizer, config)
before = [p.detach().clone() for p in network.parameters()]
session.zero_grad()
session.backward(session.model(images).square().mean())
session.synchronize_gradients()
own = [p.grad.tolist() for p in network.parameters()]
session.step()
moved = [(p.detach() - b).tolist() for p, b in zip(network.parameters(), before)]
both = backend.gather((own, moved))
if launch.rank == 0:
    print(json.dumps(both))
del session, optimizer
backend.close()
"""


@pytest.mark.ranks
def test_adasum_joins_two_updates_by_its_formula() -> None:
    """Maleki et al. 2021, equation 3: g1 (1 - g1.g2 / 2|g1|^2) + g2 (1 - g1.g2 / 2|g2|^2)."""
    done = run(mpirun(2, "-c", WORKER))
    assert done.returncode == 0, done.stderr
    (of_0, moved_0), (of_1, moved_1) = json.loads(done.stdout)
    assert moved_0 == moved_1
    for first, second, moved in zip(of_0, of_1, moved_0, strict=True):
        a, b = torch.tensor(first).double(), torch.tensor(second).double()
        dot = (a * b).sum()
        joined = a * (1 - dot / (2 * a.norm() ** 2)) + b * (1 - dot / (2 * b.norm() ** 2))
        found = torch.tensor(moved).double()
        assert torch.allclose(found, -0.5 * joined, rtol=1e-4, atol=1e-6)
        assert not torch.allclose(found, -0.5 * (a + b) / 2, rtol=1e-2, atol=1e-4)


def measured(folder: Path, backend: str, *words: str) -> Run:
    log = folder / f"{backend}.jsonl"
    words = ("--backend", backend, *DIGITS, *SHORT, *words, "--log-path", str(log))
    done = bench(2, *words, extra=OVER_TCP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("no mean of gradients, so no parity" in done.stderr) == (backend != "ddp")
    one = read_run(log)
    assert one.problem is None
    return one


@pytest.mark.ranks
def test_powersgd_sends_less_and_all_ranks_agree(tmp_path: Path) -> None:
    """With buckets of a layer each: hooks wait inside MPI's thread, and must not wait for ever."""
    small = ("--settings", "matched", "--bucket-mib", "0.01")
    mean, compressed = (measured(tmp_path, b, *small) for b in ("ddp", "powersgd"))
    assert len(mean.end["exchange_bytes"]) > 2
    (sent,) = compressed.end["exchange_bytes"]
    assert 0 < sent < 0.05 * sum(mean.end["exchange_bytes"])
    # what the kernel counted: two of nine steps are not compressed, and scalars travel as well
    tcp = [sum(of["lo"] for of in one.end["tcp_bytes"]) for one in (mean, compressed)]
    assert 2 / 9 < tcp[1] / tcp[0] < 1 / 2
    assert compressed.end["checks"]["parameters_equal"]
    assert "parity" not in compressed.end["checks"]
    assert compressed.end["parity"] == []


@pytest.mark.ranks
def test_adasum_trains_to_a_good_end_with_equal_ranks(tmp_path: Path) -> None:
    one = measured(tmp_path, "adasum", "--accumulate", "2")
    assert one.end["checks"]["parameters_equal"]
    assert "parity" not in one.end["checks"]
    assert one.end["last_loss"] < one.end["first_loss"]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"backend": "adasum", "world_size": 3}, "world_size=3 does not allow; use 2 or 4"),
        ({"backend": "adasum", "transport": "gloo"}, "no transport=gloo; use --transport mpi"),
        ({"backend": "adasum", "device": "cuda"}, "backend=adasum exchanges CPU tensors"),
        ({"backend": "adasum", "transport": "nccl"}, "no transport=nccl; use --transport mpi"),
        ({"backend": "adasum", "clip_norm": 1.0}, "clip_norm=1.0: updates are made inside"),
        ({"backend": "adasum", "settings": "matched"}, "Horovod takes no buckets with it"),
        ({"backend": "powersgd", "transport": "gloo"}, "no transport=gloo; use --transport mpi"),
        ({"backend": "powersgd", "compression": "fp16"}, "its vectors travel in the gradients'"),
        ({"backend": "powersgd", "epochs": 1, "checkpoint": True}, "the errors that it keeps"),
    ],
)
def test_what_they_cannot_do_is_refused(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line) as caught:
        make_config({**SHARED, **fields})
    assert "\n" not in str(caught.value)


def test_looks_for_a_mean_leave_them_out() -> None:
    with pytest.raises(UsageError, match="'adasum/mpi'"):
        doctor.parse(["--cells", "ddp/mpi,adasum/mpi"])
    text, _ = shipped(read_site("testcluster"), "other-optimisation")
    assert "--cells='ddp/mpi horovod/mpi' #" in text


@pytest.mark.parametrize(("backend", "beside"), [("powersgd", "ddp"), ("adasum", "horovod")])
def test_parity_is_not_claimed(backend: str, beside: str) -> None:
    words = ["--backend", backend, "--world-size", "2", "--batch-per-rank", "4"]
    with pytest.raises(UsageError, match=f"takes no mean to compare.*use --backend {beside}$"):
        parity.parse(words)
