"""Real launchers: ranks meet over Gloo, and an MPI that a launcher does not start is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.record import read_run
from tests.bench import ranks

pytestmark = pytest.mark.ranks

SHORT = ["--model", "tests.bench.tiny:normalised", "--dataset", "digits", "--batch-per-rank", "8"]
SHORT += ["--warmup-steps", "3", "--windows", "1", "--steps-per-window", "3", "--world-size", "2"]
GLOO = {  # this environment's mpirun: test_run.py
    "mpirun of Open MPI 4": ranks.openmpi4,
    "hydra": ranks.mpich,
    "horovodrun": ranks.horovodrun,
}


@pytest.mark.parametrize(
    ("launcher", "backend"),
    [("mpirun of Open MPI 4", "horovod"), ("hydra", "ddp"), ("horovodrun", "horovod")],
)
def test_gloo_needs_no_matching_mpi(tmp_path: Path, launcher: str, backend: str) -> None:
    log = tmp_path / "run.jsonl"
    words = ["--backend", backend, "--transport", "gloo", "--log-path", str(log)]
    done = ranks.run(GLOO[launcher](2, "-m", "bench", *SHORT, *words), timeout_s=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Total img/sec on 2 CPU(s): " in done.stdout
    result = read_run(log)
    assert result.problem is None
    assert [r["source"] for r in result.host["ranks"]] == [launcher.split()[0]] * 2
    assert result.host["versions"]["gloo"].startswith("bundled with ")
    env = result.host["env"]
    assert env["GLOO_SOCKET_IFNAME"] == env["HOROVOD_GLOO_IFACE"] == "lo"
