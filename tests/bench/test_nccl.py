"""Which NCCL a process calls and over what it is connected; a stub stands where no GPU is."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.backends import nccl
from bench.backends.catalogue import CATALOGUE
from tests.bench.ranks import ROOT, environment, torchrun

BACKEND = """
from bench.backends.facts import BackendFacts

FACTS = BackendFacts(
    name="stub",
    label="Stub",
    short_label="stub",
    implementation=f"{__name__}:start",
    collectives=f"{__name__}:collectives",
    transports=("nccl",),
)


def start(*arguments):
    from tests.bench.nccl_worker import Stubbed

    return Stubbed(*arguments)


def collectives(config):
    from tests.bench.nccl_worker import all_reduce

    return {"all_reduce": all_reduce}
"""
STUB = Path(__file__).with_name("nccl_stub.c")
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0


def stub(path: Path, code: int = 22703, inside: str = "") -> Path:
    """Build a shared library with an NCCL of that version, or with one linked into it."""
    what = f'-DINSIDE="{inside}"' if inside else f"-DCODE={code}"
    command = [str(shutil.which("gcc")), "-shared", "-fPIC", what, "-o", str(path), str(STUB)]
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, check=True)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def library(*loaded: Path, inside: str = "") -> list[str]:
    """Return what a process that loaded these says: path, version and SHA-256, or its refusal."""
    program = (
        "import ctypes\nfrom bench.backends import nccl\nfrom bench.config import UsageError\n"
        f"for path in {list(map(str, loaded))}: ctypes.CDLL(path)\n"
        f"try:\n    one = nccl.library({inside!r})\n"
        "    print(one.path, one.version, one.sha256, sep='\\n')\n"
        "except UsageError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_library_that_carries_the_gradients_is_asked_itself(tmp_path: Path) -> None:
    path = stub(tmp_path / "libnccl.so.2", 21005)
    plugin = stub(tmp_path / "libnccl-net.so", inside="2.4.8")
    own = stub(tmp_path / "mpi_lib_v2.cpython-311.so", inside="2.18.3")
    torchs = stub(tmp_path / "libtorch_cuda.so", inside="2.26.2")
    amds = stub(tmp_path / "librccl.so.1", 22205)
    inside = CATALOGUE["horovod"].nccl_inside
    assert library(path, plugin, torchs) == [str(path), "2.10.5", sha256(path)]
    assert library(path, own, inside=inside) == [str(own), "2.18.3", sha256(own)]
    assert library(torchs, inside=inside) == [str(torchs), "2.26.2", sha256(torchs)]
    assert library(amds) == [str(amds), "2.22.5", sha256(amds)]
    (line,) = library(path, amds)
    assert line.startswith(f"this process has loaded {path} and {amds}: which NCCL")
    assert library() == ["no NCCL is loaded in this process; install a torch for GPUs"]


def test_mapped_files_are_each_named_once() -> None:
    maps = """\
7f10-7f20 r-xp 00000000 08:01 11  /env/my python/nvidia/nccl/lib/libnccl.so.2
7f20-7f30 r--p 00010000 08:01 11  /env/my python/nvidia/nccl/lib/libnccl.so.2
7f40-7f50 rw-p 00000000 00:00 0   [heap]
7f50-7f60 rw-p 00000000 00:00 0
7f60-7f70 r--p 00000000 08:01 13  /opt/libnccl-notes.txt
"""
    assert nccl.mapped(nccl._SHARED, maps) == ["/env/my python/nvidia/nccl/lib/libnccl.so.2"]
    versions = [nccl.version(code) for code in (2804, 20906, 22703)]
    assert versions == ["2.8.4", "2.9.6", "2.27.3"], "as NCCL's header writes them"


# lines as NCCL 2.10 to 2.27 and RCCL write them, behind "host:pid:thread [device] NCCL INFO "
LINES = {
    "Channel 00 : 3[b1000] -> 4[18000] [send] via NET/Socket/0": {"NET/Socket"},
    "Channel 03 : 15[a01d0] -> 6[a01c0] [receive] via NET/AWS Libfabric/3/GDRDMA": {
        "NET/AWS Libfabric/GDRDMA"
    },
    "Channel 00/0 : 0[7000] -> 1[b000] via P2P/indirect/4[4e000]/read": {"P2P/indirect/read"},
    "Channel 01/0 : 3[4e000] -> 8[7000] [send] via NET/IB/0(1)/GDRDMA/Shared": {"NET/IB/GDRDMA"},
    "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA": {"COLLNET/SHARP/GDRDMA"},
    "Channel 00/0 : 0[d6000] -> 3[c6000] via P2P/IPC comm 0x9bbf3b0 nRanks 4096": {"P2P/IPC"},
    "Channel 00/02 :    0   1   2   3": {"not recorded"},
    "Using network Socket": {"not recorded"},
}


@pytest.mark.parametrize("line", LINES)
def test_what_nccl_says_of_its_connections(line: str) -> None:
    lines = [f"n1:829507:829550 [0] NCCL INFO {said}" for said in ("Connected all rings", line)]
    assert nccl.transports(lines) == LINES[line]


@pytest.mark.parametrize("debugging", [False, True])
def test_a_log_says_which_nccl_ran_and_what_it_took(tmp_path: Path, debugging: bool) -> None:
    """The stub keeps its lines in memory until it is told to write them, as some NCCLs do."""
    path, log = stub(tmp_path / "libnccl.so.2"), tmp_path / "run.jsonl"
    (tmp_path / "hvd_ddp_backend_stub.py").write_text(BACKEND)
    own = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(tmp_path / "said")} if debugging else {}
    own["NCCL_DEBUG_SUBSYS"] = "ENV"
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.nccl_worker", str(path), str(log)],
        cwd=ROOT,
        env=environment({**own, "PYTHONPATH": str(tmp_path)}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    host = json.loads(log.read_text().splitlines()[0])["host"]
    assert host["versions"]["nccl"] == "2.27.3"
    assert host["versions"]["nccl library sha256"] == sha256(path)
    taken = "not recorded" if debugging else "NET/Socket, P2P/CUMEM"
    assert host["versions"]["nccl transport"] == taken
    assert host["ranks"][0]["nccl_library"] == str(path)
    assert {k: v for k, v in host["env"].items() if k.startswith("NCCL_")} == own
    assert (tmp_path / "said").exists() == debugging


@pytest.mark.ranks
@pytest.mark.parametrize(("backend", "ranks"), [(b, n) for b in ("ddp", "horovod") for n in (1, 2)])
def test_on_gpus_a_run_says_which_nccl_ran_and_what_it_took(
    tmp_path: Path, backend: str, ranks: int
) -> None:
    if ranks > GPUS:
        pytest.xfail(f"needs {ranks} GPU(s), and this machine has {GPUS}: not run")
    log = tmp_path / "run.jsonl"
    words = ["--backend", backend, "--transport", "nccl", "--device", "cuda", "--model", "mlp"]
    words += ["--batch-per-rank", "8", "--warmup-steps", "3", "--windows", "1"]
    words += ["--steps-per-window", "2", "--log-path", str(log)]
    start = torchrun(ranks, "-m", "bench", "--world-size", str(ranks), *words)
    done = subprocess.run(start, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    host = json.loads(log.read_text().splitlines()[0])["host"]
    files = {rank["nccl_library"] for rank in host["ranks"]}
    assert {sha256(Path(file)) for file in files} == {host["versions"]["nccl library sha256"]}
    assert re.fullmatch(r"2\.\d+\.\d+", host["versions"]["nccl"])
    taken = host["versions"]["nccl transport"]
    assert taken == "none" if ranks == 1 else re.match("P2P|SHM|NET|NVLS", taken)
