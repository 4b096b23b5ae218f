"""Which NCCL a process calls and over what it is connected; a stub stands where no GPU is."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from bench.backends import catalogue, nccl
from bench.backends.catalogue import CATALOGUE
from bench.backends.protocol import Backend
from bench.config import RunConfig
from bench.launch.world import discover
from bench.train.device import Cpu
from tests.bench.ranks import run, torchrun

STUB = Path(__file__).with_name("nccl_stub.c")
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0


def stub(path: Path, code: int = 22703, inside: str = "") -> Path:
    """Build a shared library with an NCCL of that version, or with one linked into it."""
    what = f'-DINSIDE="{inside}"' if inside else f"-DCODE={code}"
    command = [str(shutil.which("gcc")), "-shared", "-fPIC", what, "-o", str(path), str(STUB)]
    subprocess.run(command, check=True)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def library(*loaded: Path, inside: str = "") -> list[str]:
    """Return what a process that loaded these says: path, version and SHA-256, or its refusal."""
    program = (
        "import ctypes\nfrom bench.backends import nccl\n"
        f"for path in {list(map(str, loaded))}: ctypes.CDLL(path)\n"
        f"try:\n    print(*nccl.library({inside!r}), sep='\\n')\n"
        "except nccl.UsageError as error:\n    print(error)\n"
    )
    return run([sys.executable, "-c", program]).stdout.splitlines()


def test_the_library_that_carries_the_gradients_is_asked_itself(tmp_path: Path) -> None:
    (tmp_path / "my python").mkdir()
    path = stub(tmp_path / "my python" / "libnccl.so.2", 21005)
    plugin = stub(tmp_path / "libnccl-net.so", inside="2.4.8")
    own = stub(tmp_path / "mpi_lib_v2.cpython-311.so", inside="2.18.3")
    torchs = stub(tmp_path / "libtorch_cuda.so", inside="2.26.2")
    amds = stub(tmp_path / "librccl.so.1", 2804)
    inside = CATALOGUE["horovod"].nccl_inside
    assert library(path, plugin, torchs) == [str(path), "2.10.5", sha256(path)]
    assert library(path, own, inside=inside) == [str(own), "2.18.3", sha256(own)]
    assert library(torchs, inside=inside) == [str(torchs), "2.26.2", sha256(torchs)]
    assert library(amds) == [str(amds), "2.8.4", sha256(amds)], "as NCCL's header writes it"
    (line,) = library(path, amds)
    assert line.startswith(f"this process has loaded {amds} and {path}: which NCCL")
    assert library() == ["no NCCL is loaded in this process; install a torch for GPUs"]


# lines as NCCL 2.10 to 2.27 write them, behind "host:pid:thread [device] NCCL INFO "
LINES = {
    "Channel 00 : 3[b1000] -> 4[18000] [send] via NET/Socket/0": {"NET/Socket"},
    "Channel 03 : 15[a01d0] -> 6[a01c0] [receive] via NET/AWS Libfabric/3/GDRDMA": {
        "NET/AWS Libfabric/GDRDMA"
    },
    "Channel 01/0 : 3[4e000] -> 8[7000] [send] via NET/IB/0(1)/GDRDMA/Shared": {"NET/IB/GDRDMA"},
    "Channel 00/0 : 0[d6000] -> 3[c6000] via P2P/IPC comm 0x9bbf3b0 nRanks 4096": {"P2P/IPC"},
    "Channel 00/02 :    0   1   2   3": {"not recorded"},
}


def test_what_nccl_says_of_its_connections() -> None:
    for line, transports in LINES.items():
        lines = [f"n1:829507:829550 [0] NCCL INFO {said}" for said in ("Connected all rings", line)]
        assert nccl.transports(lines) == transports, line


class Stubbed(Backend):
    """One rank that believes in a second one, which NCCL reaches over sockets."""

    def gather(self, value: Any) -> list[Any]:
        return [value, {"NET/Socket"}]

    wrap = reduce_scalar = all_reduce = barrier = close = cast("Any", lambda *_: None)


def start(path: str) -> None:
    """Start such a backend with the stub as its NCCL, and print which it says it has."""

    def all_reduce(_: torch.Tensor) -> None:
        assert ctypes.CDLL(path).ncclAllReduce() == 0, "NCCL writes of every call"

    patched: Any = catalogue
    patched.implementation = lambda _: lambda *_: ctypes.CDLL(path) and Stubbed()
    Stubbed.all_reduce = staticmethod(all_reduce)
    config = RunConfig(backend="ddp", transport="nccl", device="cuda", batch_per_rank=1)
    before = dict(os.environ)
    backend = nccl.load(config, discover({})._replace(size=2), Cpu())
    assert dict(os.environ) == before
    print(json.dumps([backend.versions, backend.files]))


def test_a_backend_says_which_nccl_it_has_and_what_it_took(tmp_path: Path) -> None:
    """The stub keeps its lines in memory until it is told to write them, as some NCCLs do."""
    path = stub(tmp_path / "libnccl.so.2")
    program = f"from tests.bench.test_nccl import start; start({str(path)!r})"
    for debugging in ({}, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(tmp_path / "log")}):
        done = run([sys.executable, "-c", program], debugging)
        assert done.returncode == 0, done.stderr
        versions, files = json.loads(done.stdout)
        connections = "not recorded" if debugging else "NET/Socket, P2P/CUMEM"
        facts = [versions[f"nccl{name}"] for name in ("", " library sha256", " transport")]
        assert facts == ["2.27.3", sha256(path), connections]
        assert files == {"nccl_library": str(path)}


@pytest.mark.ranks
@pytest.mark.parametrize("backend", ["ddp", "horovod"])
def test_on_gpus_a_run_says_which_nccl_ran_and_what_it_took(tmp_path: Path, backend: str) -> None:
    if not GPUS:
        pytest.xfail("needs a GPU, and this machine has none: not run")
    ranks = min(GPUS, 2)
    log = tmp_path / "run.jsonl"
    words = f"--backend {backend} --transport nccl --device cuda --model mlp --batch-per-rank 8"
    words += f" --world-size {ranks} --warmup-steps 3 --windows 2 --log-path {log}"
    done = run(torchrun(ranks, "-m", "bench", *words.split()))
    assert done.returncode == 0, done.stderr
    host = json.loads(log.read_text().splitlines()[0])["host"]
    files = {rank["nccl_library"] for rank in host["ranks"]}
    assert {sha256(Path(file)) for file in files} == {host["versions"]["nccl library sha256"]}
    connections = host["versions"]["nccl transport"]
    assert connections == "none" if ranks == 1 else re.match("P2P|SHM|NET|NVLS", connections)
