"""The contract, on real ranks: a backend trains as one process that averages shards' gradients."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.backends.catalogue import parts
from bench.backends.ddp import Ddp
from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.instrument import parity
from bench.instrument.parity import Gradients
from bench.record import read_run
from tests.bench import contract_worker
from tests.bench.contract_worker import MODELS, PRECISIONS, VARIANTS, offered
from tests.bench.ranks import ROOT, bench, together

pytestmark = pytest.mark.ranks

WORKER = contract_worker.__name__
USERS = ROOT / "tests" / "user"
OVER_MPI, OVER_GLOO = ("ddp/mpi", "horovod/mpi"), ("ddp/gloo", "horovod/gloo")
CELLS = [
    *[(cell, "shipped", ranks) for cell in (*OVER_MPI, *OVER_GLOO) for ranks in (2, 3)],
    *[(cell, "matched", 2) for cell in OVER_MPI],
    ("handwritten/mpi", "matched", 2),
    ("ps/mpi", "matched", 2),
    ("fourth/gloo", "shipped", 2),  # a user's own
]


VARIANTS_OF = [
    (*cell, variant)
    for cell in CELLS
    for variant in VARIANTS
    if offered(parts(cell[0]).backend, variant)
]


def trained(cell: str, settings: str, ranks: int) -> Any:
    of_cell = tuple(s for c, s, r in CELLS if (c, r) == (cell, ranks))
    # Horovod is told some of its settings when it starts
    return launched(cell, (settings,) if "horovod" in cell else of_cell, ranks)[settings]


@functools.cache
def launched(cell: str, settings: tuple[str, ...], ranks: int) -> Any:
    """Run one launch and return what became of it, by settings."""
    backend, transport = cell.split("/")
    options = ["--backend", backend, "--transport", transport, "--world-size", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.pt"
        words = [WORKER, str(out), ",".join(settings), *options]
        done = together(ranks, *words, extra={"PYTHONPATH": str(USERS)})
        assert done.returncode == 0, done.stdout + done.stderr
        return torch.load(out, weights_only=False)


specified = functools.cache(contract_worker.specified)


def relative(found: Gradients, wanted: Gradients) -> float:
    """Find the largest over tensors of max|difference| / max|reference|."""
    return max(parity.relative(found, wanted))


def rounding(precision: str, ranks: int) -> float:
    """Compute what another order of summation explains in one step."""
    fields = {"backend": "ddp", "world_size": ranks, "batch_per_rank": 4, **VARIANTS[precision]}
    return parity.rounding(RunConfig(**fields))


@pytest.mark.parametrize(("cell", "settings", "ranks", "precision"), VARIANTS_OF)
@pytest.mark.parametrize("model", MODELS)
def test_trains_as_one_process_that_averages_the_shards(
    cell: str, settings: str, ranks: int, model: str, precision: str
) -> None:
    got, want = trained(cell, settings, ranks)[model, precision], specified(ranks)[model, precision]
    assert len(got["digests"]) == ranks
    assert len(set(got["digests"])) == 1, "ranks ended with different parameters"
    assert len(got["gradients"]) == len(want["gradients"]) > 0
    # a sum of two and a division by two are exact in any order: all steps agree bit for bit
    if ranks == 2:
        assert got["digests"][0] == want["digests"][0]
        return
    assert relative(got["gradients"], want["gradients"]) <= rounding(precision, ranks)
    if "bf16" in str(VARIANTS[precision]):
        # the last of bfloat16's eight bits may fall the other way, which moves a weight too far to
        # speak of drift
        return
    # beyond one step the order of summation makes trajectories part: drift is held against that of
    # the specification summed in another order, which is as legitimate
    drift = relative(got["parameters"], want["parameters"])
    allowed = relative(want["other_order"]["parameters"], want["parameters"])
    told = f"drift {drift:.1e} at the end, other order of summation {allowed:.1e}"
    print(f"{cell} {settings} {model} {precision}: {told}")
    assert drift <= max(100 * allowed, rounding(precision, ranks))


@pytest.mark.parametrize(("cell", "settings", "ranks"), CELLS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_without_batchnorm_it_is_the_gradient_of_the_joined_batch(
    cell: str, settings: str, ranks: int, precision: str
) -> None:
    got = trained(cell, settings, ranks)[MODELS[0], precision]["gradients"]
    want = specified(ranks)[MODELS[0], precision]["joined"]
    assert relative(got, want) <= rounding(precision, ranks)


def test_batchnorm_sees_its_own_shard_only() -> None:
    """The joined batch has other statistics, so this must differ: the comparison can fail."""
    want = specified(2)[MODELS[1], "float64"]
    assert relative(want["gradients"], want["joined"]) > 1e-3


@pytest.mark.parametrize(("cell", "settings", "ranks"), CELLS)
def test_small_verbs(cell: str, settings: str, ranks: int) -> None:
    got = trained(cell, settings, ranks)["verbs"]
    assert got["reduced"] == {"sum": ranks * (ranks + 1) / 2, "max": ranks, "min": 1}
    assert got["third"] == 1 / 3, "scalars must travel in float64"
    assert got["gathered"] == [{"rank": r, "text": "x" * r} for r in range(ranks)]
    for start in got["start"][1:]:
        same = [torch.equal(a, b) for a, b in zip(start, got["start"][0], strict=True)]
        assert all(same), "rank 0's weights must win"
    assert all(got["no_state_after_wrap"]), "wrapping must not take a step"
    for buffers in got["buffers"]:
        assert len(buffers) == 6
        assert all((b == 1).all() for b in buffers), "rank 0's buffers must win"
    assert all(got["cleared"])
    assert got["kept"], "type, shape, layout and values of rank 0's tensors"
    came, left = zip(*got["barrier"], strict=True)
    assert min(left) >= max(came), "the barrier waits for all, and rank 0 came late"


@pytest.mark.parametrize(("cell", "settings", "ranks"), CELLS)
def test_without_exchange_every_rank_trains_by_its_shard_alone(
    cell: str, settings: str, ranks: int
) -> None:
    got = trained(cell, settings, ranks)["exchange off"]
    assert got["digests"] == got["plain"]
    assert len(set(got["digests"])) == ranks
    assert got["exchange_bytes"] == []


@pytest.mark.parametrize(("cell", "settings", "ranks"), CELLS)
@pytest.mark.parametrize("model", MODELS)
def test_without_overlap_one_exchange_holds_every_gradient(
    cell: str, settings: str, ranks: int, model: str
) -> None:
    """So it cannot begin before the last gradient is there, that of a shared layer included."""
    got = trained(cell, settings, ranks)[model, "overlap off"]
    assert got["exchange_bytes"] == [sum(p.nbytes for p in got["parameters"])]


def test_matched_settings_exchange_equal_bytes() -> None:
    """ResNet-50 at the 25 MiB cap: DDP's rebuilt buckets are those that Horovod is given."""
    ddp = trained("ddp/mpi", "matched", 2)["exchange_bytes"]
    horovod = trained("horovod/mpi", "matched", 2)["exchange_bytes"]
    assert ddp == horovod
    assert [round(size / 2**20, 3) for size in ddp] == [28.855, 25.039, 27.053, 16.545]


@pytest.mark.parametrize("left_out", ["wrap", "reduce_scalar", "gather", "barrier", "close"])
def test_a_backend_that_leaves_a_verb_out_is_refused(left_out: str) -> None:
    """It would be measured with that of one process: without a barrier, say."""
    verbs = {name: getattr(Ddp, name) for name in vars(Backend) if not name.startswith("_")}
    assert issubclass(type("Whole", (Backend,), dict(verbs)), Backend)
    del verbs[left_out]
    with pytest.raises(TypeError, match=f"Half has no {left_out} of its own"):
        type("Half", (Backend,), verbs)


def test_by_hand_a_layer_that_one_rank_uses_is_averaged_as_ddp_averages_it(tmp_path: Path) -> None:
    """And one that nobody uses stays as it is, whatever weight decay would do."""
    words = ["--world-size", "2", "--model", "tests.bench.tiny:sometimes", "--dataset", "digits"]
    words += ["--image-size", "8", "--batch-per-rank", "4", "--unused-parameters", "--windows", "2"]
    found = []
    cut = ["--bucket-mib", "0"]
    for backend, own in (("ddp", []), ("handwritten", cut), ("ps", cut)):
        log = tmp_path / f"{backend}.jsonl"
        done = bench(2, "--backend", backend, *words, *own, "--log-path", str(log))
        assert done.returncode == 0, done.stderr
        found.append(read_run(log).end["parameters_sha256"])
    assert len(set(found)) == 1
