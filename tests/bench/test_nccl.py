"""Which NCCL a process calls and over what it is connected; a stub stands where no GPU is."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
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
    from tests.bench.nccl_worker import OfStub

    return OfStub(config)
"""
STUB = Path(__file__).with_name("nccl_stub.c")
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0


def stub(path: Path, code: int = 22703, inside: str = "") -> Path:
    """A shared library with an NCCL of that version, or with one linked into it."""
    what = f'-DINSIDE="{inside}"' if inside else f"-DCODE={code}"
    command = [str(shutil.which("gcc")), "-shared", "-fPIC", what, "-o", str(path), str(STUB)]
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(command, check=True)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def library(*loaded: Path, inside: str = "", then: str = "") -> list[str]:
    """Path, version and SHA-256 that a process which has loaded these says; or why it refuses."""
    program = (
        "import ctypes, sys\nfrom bench.backends import nccl\nfrom bench.config import UsageError\n"
        f"for path in {list(map(str, loaded))}: ctypes.CDLL(path)\n{then}\n"
        f"try:\n    one = nccl.library({inside!r})\n"
        "    print(one.path, one.version, one.sha256, sep='\\n')\n"
        "except UsageError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(("code", "version"), [(22703, "2.27.3"), (21005, "2.10.5")])
def test_the_library_that_is_loaded_is_asked_itself(
    tmp_path: Path, code: int, version: str
) -> None:
    path = stub(tmp_path / "libnccl.so.2", code)
    plugin = stub(tmp_path / "libnccl-net.so", inside="2.4.8")
    assert library(path, plugin) == [str(path), version, sha256(path)]


def test_rccl_is_found_by_its_own_name(tmp_path: Path) -> None:
    path = stub(tmp_path / "librccl.so.1", 22205)
    assert library(path) == [str(path), "2.22.5", sha256(path)]


def test_two_nccls_in_one_process_are_refused(tmp_path: Path) -> None:
    first, second = (stub(tmp_path / name / "libnccl.so.2") for name in "ab")
    (line,) = library(first, second)
    assert line.startswith(f"this process has loaded {first} and {second}: which NCCL")
    assert "HOROVOD_NCCL_LINK=SHARED" in line


def test_an_nccl_inside_a_framework_is_told_from_the_one_beside_it(tmp_path: Path) -> None:
    beside = stub(tmp_path / "libnccl.so.2")
    own = stub(tmp_path / "mpi_lib_v2.cpython-311.so", inside="2.18.3")
    torchs = stub(tmp_path / "libtorch_cuda.so", inside="2.26.2")
    inside = CATALOGUE["horovod"].nccl_inside
    assert library(beside, own, inside=inside) == [str(own), "2.18.3", sha256(own)]
    assert library(beside, own, torchs) == [str(beside), "2.27.3", sha256(beside)]
    assert library(torchs, inside=inside) == [str(torchs), "2.26.2", sha256(torchs)]


def test_a_library_that_was_taken_away_or_is_not_there_is_refused(tmp_path: Path) -> None:
    path = stub(tmp_path / "libnccl.so.2")
    (line,) = library(path, then=f"import os; os.remove({str(path)!r})")
    assert line.startswith("the NCCL that this process has loaded cannot be read (")
    assert library() == ["no NCCL is loaded in this process; install a torch for GPUs"]


def test_horovods_own_library_here_has_no_nccl_inside() -> None:
    """Its real file, with the maps of a real process."""
    program = (
        "import horovod.torch; from bench.backends import nccl; from pathlib import Path\n"
        "paths = nccl.mapped('mpi_lib', Path('/proc/self/maps').read_text())\n"
        "print(len(paths), *map(nccl._version_inside, paths))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "1 None\n", done.stderr


def test_mapped_files_are_each_named_once() -> None:
    maps = """\
7f10-7f20 r-xp 00000000 08:01 11  /env/my python/nvidia/nccl/lib/libnccl.so.2
7f20-7f30 r--p 00010000 08:01 11  /env/my python/nvidia/nccl/lib/libnccl.so.2
7f30-7f40 r-xp 00000000 08:01 12  /opt/nccl/lib/libnccl.so.2.29.7
7f40-7f50 rw-p 00000000 00:00 0   [heap]
7f50-7f60 rw-p 00000000 00:00 0
7f60-7f70 r--p 00000000 08:01 13  /opt/libnccl-notes.txt
7f70-7f80 r-xp 00000000 08:01 14  /opt/lib/libnccl-net.so
"""
    assert nccl.mapped(nccl._SHARED, maps) == [
        "/env/my python/nvidia/nccl/lib/libnccl.so.2",
        "/opt/nccl/lib/libnccl.so.2.29.7",
    ]


def test_versions_as_nccls_header_writes_them() -> None:
    assert [nccl.version(code) for code in (2708, 2804, 20906, 22703)] == [
        *("2.7.8", "2.8.4", "2.9.6", "2.27.3")
    ]


# lines as NCCL and RCCL of these versions write them, behind "host:pid:thread [device] NCCL INFO "
LINES = {
    "2.10": (
        "Channel 00/02 :    0   1   2   3",
        "Channel 00 : 3[b1000] -> 4[18000] [send] via NET/Socket/0",
        "Channel 00 : 1[1a000] -> 2[af000] via direct shared memory",
        "Connected all rings",
    ),
    "2.10 plug-in": (
        "NET/OFI Selected Provider is efa",
        "Channel 01 : 2[201c0] -> 7[a01d0] via P2P/IPC/read",
        "Channel 03 : 15[a01d0] -> 6[a01c0] [receive] via NET/AWS Libfabric/3/GDRDMA",
    ),
    "2.14": (
        "Channel 00/0 : 0[7000] -> 1[b000] via P2P/indirect/4[4e000]/read",
        "Channel 00 : 2[47000] -> 3[4e000] via SHM/direct/direct",
        "Channel 01/0 : 3[4e000] -> 8[7000] [send] via NET/IB/0(1)/GDRDMA/Shared",
    ),
    "2.19": (
        "Using network IB",
        "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
        "Channel 02/0 : 8[0] -> 0[0] [receive] via NET/IBext_v8/2",
    ),
    "2.27": (
        "NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)",
        "Channel 00/0 : 0[0] -> 1[0] via P2P/MNNVL",
        "Channel 00 : 2[2] -> 3[3] via SHM/CE/direct",
        "Channel 05/0 : 7[7] -> 8[0] [send] via NET/IB/5/GDRDMA(PCI)",
    ),
    "RCCL 2.18": (
        "Channel 00/0 : 0[d6000] -> 3[c6000] via P2P/IPC comm 0x9bbf3b0 nRanks 4096",
        "Channel 01/0 : 6[d6] -> 1[c6] [receive] via NET/AWS Libfabric/1/Shared comm 0x7 nRanks 8",
    ),
    "one process": ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer",),
    "a rank that nothing is said of": ("Using network Socket",),
    "a form of a later version": (
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "Channel 00/0 : 1[1] -> 2[2] via PHOTON/0",
    ),
    "a word more": ("Channel 00/0 : 0[0] -> 1[1] via NET/IB/0/FASTER",),
}
TAKEN = {
    "2.10": {"NET/Socket", "SHM"},
    "2.10 plug-in": {"P2P/IPC/read", "NET/AWS Libfabric/GDRDMA"},
    "2.14": {"P2P/indirect/read", "SHM", "NET/IB/GDRDMA"},
    "2.19": {"COLLNET/SHARP/GDRDMA", "P2P/CUMEM/read", "NVLS", "NET/IBext_v8"},
    "2.27": {"P2P/MNNVL", "SHM/CE/direct", "NET/IB/GDRDMA(PCI)"},
    "RCCL 2.18": {"P2P/IPC", "NET/AWS Libfabric"},
    "one process": {"P2P/direct pointer"},
    "a rank that nothing is said of": {"not recorded"},
    "a form of a later version": {"P2P/CUMEM", "not recorded"},
    "a word more": {"not recorded"},
}


@pytest.mark.parametrize("sample", LINES)
def test_what_nccl_says_of_its_connections(sample: str) -> None:
    lines = [f"n1:829507:829550 [0] NCCL INFO {line}" for line in LINES[sample]]
    assert nccl.transports(lines) == TAKEN[sample]


def test_who_offers_nccl_has_the_all_reduce_that_is_listened_to() -> None:
    over_nccl = [row for row in CATALOGUE.values() if "nccl" in row.transports]
    assert {row.name for row in over_nccl} == {"ddp", "horovod"}
    assert all(row.collectives for row in over_nccl)


def test_what_all_ranks_took_together() -> None:
    assert nccl.transport([{"P2P/CUMEM"}, {"P2P/CUMEM", "NET/IB"}]) == "NET/IB, P2P/CUMEM"
    assert nccl.transport([{"P2P/CUMEM"}, {"NET/IB", "not recorded"}]) == "not recorded"


def test_the_environment_is_the_users_again() -> None:
    env = {"NCCL_DEBUG_SUBSYS": "ALL", "NCCL_IB_HCA": "mlx5_0"}
    with nccl.listening(env) as info:
        assert info is not None
        folder = info.parent
        ours = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": str(info)}
        assert env == {"NCCL_IB_HCA": "mlx5_0", **ours}
        assert folder.is_relative_to(tempfile.gettempdir())
    assert env == {"NCCL_DEBUG_SUBSYS": "ALL", "NCCL_IB_HCA": "mlx5_0"}
    assert not folder.exists()


@pytest.mark.parametrize(
    ("env", "file"),
    [
        ({"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/tmp/n.%p"}, None),
        ({"NCCL_DEBUG": "INFO"}, None),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/of_all_ranks"}, None),
        ({"NCCL_DEBUG": "info", "NCCL_DEBUG_FILE": "/tmp/n%%.%p"}, "/tmp/n%.PID"),
    ],
)
def test_a_users_own_debugging_is_left_alone(env: dict[str, str], file: str | None) -> None:
    before = dict(env)
    with nccl.listening(env) as info:
        assert env == before
        assert info == (None if file is None else Path(file.replace("PID", str(os.getpid()))))


@pytest.mark.parametrize("debugging", [False, True])
def test_a_log_says_which_nccl_ran_and_what_it_took(tmp_path: Path, debugging: bool) -> None:
    """The stub keeps its lines in memory until it is told to write them, as some NCCLs do."""
    path, log = stub(tmp_path / "libnccl.so.2"), tmp_path / "run.jsonl"
    (tmp_path / "hvd_ddp_backend_stub.py").write_text(BACKEND)
    own = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(tmp_path / "said.%p")} if debugging else {}
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
    assert host["versions"]["nccl transport"] == "NET/Socket, P2P/CUMEM"
    assert host["ranks"][0]["nccl_library"] == str(path)
    assert {k: v for k, v in host["env"].items() if k.startswith("NCCL_")} == own
    assert (tmp_path / f"said.{done.stdout.strip()}").exists() == debugging


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
