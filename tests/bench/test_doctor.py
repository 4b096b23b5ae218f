"""The doctor finds planted faults, each as real as one machine allows, and names the cure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.bench import ranks
from tests.bench.ranks import ROOT, environment, mpich, mpirun, run
from tests.plots import logs

pytestmark = pytest.mark.ranks

IN_LINES = ["-m", "bench", "doctor", "--limit-s", "150"]  # a busy machine imports torch slowly
DOCTOR = [*IN_LINES, "--json"]
NOTHING = "--cells="  # the checks alone: a try costs seconds, and only some faults need one
ALONE = [sys.executable, *DOCTOR]

Found = list[dict[str, str]]


def said(done: subprocess.CompletedProcess[str], status: int) -> Found:
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["status"] == status
    assert answer["schema"] == 1
    findings: Found = answer["findings"]
    assert all(finding["cure"] for finding in findings if finding["level"] != "ok")
    return findings


def failures(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Name -> text and cure of each failure; two of one name follow each other."""
    found: dict[str, str] = {}
    for finding in said(done, 1):
        if finding["level"] == "failure":
            before = found.get(finding["name"], "")
            found[finding["name"]] = f"{before}{finding['text']}; {finding['cure']}"
    return found


def test_a_fit_machine_alone(tmp_path: Path) -> None:
    log = logs.write(tmp_path / "one.jsonl", logs.config("single", 1), 3600.0)
    logs.edit(log, '"workload": {}', '"workload": {"gradient_bytes": 4000000}')
    command = [*ALONE, "--cells", "horovod/mpi,ddp/gloo", "--one-rank", str(log)]
    findings = said(run(command), 0)
    good = {"launcher", "libraries", "Horovod", "interface", "host name", "data", "folder"}
    good |= {"mpirun", "horovod/mpi", "ddp/gloo"}
    assert {f["name"] for f in findings if f["level"] == "ok"} >= good
    warnings = {f["name"]: f for f in findings if f["level"] == "warning"}
    assert set(warnings) <= {"cores", "torchvision", "others"}  # tests run beside one another
    alone = run([sys.executable, "-W", "ignore", "-c", "import torchvision"])
    assert ("torchvision" in warnings) == (alone.returncode != 0)
    if alone.returncode:
        assert alone.stderr.splitlines()[-1].split(": ", 1)[1] in warnings["torchvision"]["text"]
        assert "TORCH_INDEX_URL=" in warnings["torchvision"]["cure"]
    (tried,) = [f["text"] for f in findings if f["name"] == "horovod/mpi"]
    assert "2 ranks average 4 MiB" in tried
    assert "Open MPI" in tried
    bounds = [f for f in findings if f["name"] == "speed-up"]
    assert [(f["level"], f["text"].split(":")[0]) for f in bounds] == [
        ("ok", "horovod/mpi"),
        ("ok", "ddp/gloo"),
    ]
    hour = "2 ranks process at most 2.00 times the images of one if nothing of the exchange is "
    hour += "hidden, 2.00 times if all is: a step takes 3.6e+06 ms, an all-reduce of its 4 MB of"
    assert all(hour in f["text"] for f in bounds)


def test_a_fit_launch_in_plain_lines() -> None:
    done = run(mpirun(2, *IN_LINES, "--world-size", "2"))
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "... this takes about 58 s, more where the machine is busy"
    trying = said.index("... trying ddp/gloo (at most 150 s)")
    assert trying < said.index("... trying horovod/gloo (at most 150 s)")
    assert said[trying + 1].split()[:2] == ["ok", "ddp/gloo"], "a finding follows its try"
    lines = [line for line in said if not line.startswith("...")]
    assert lines[0].split() == ["ok", "launcher", "mpirun:", "2", "rank(s)"]
    tried = [line.split()[1] for line in lines[-5:-1]]
    assert tried == ["ddp/gloo", "horovod/gloo", "ddp/mpi", "horovod/mpi"]
    assert lines[-1].endswith("0 failure")
    (places,) = [line for line in lines if line.split()[1] == "places"]
    assert re.match(r"ok +places +rank 0-1: cores 0.* \(NUMA node [\d, ]+\)$", places)
    assert "..." not in done.stderr
    assert done.stdout.count("launcher") == 1, "rank 0 speaks for all"


@pytest.mark.thorough
@pytest.mark.parametrize("launcher", [ranks.torchrun, ranks.horovodrun])
def test_launchers_that_start_no_mpi_try_gloo(launcher: Any) -> None:
    done = run(launcher(2, *IN_LINES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starts no MPI" in done.stdout
    assert "horovod/gloo 2 ranks average" in done.stdout
    assert "ddp/mpi" not in done.stdout


@pytest.mark.thorough
def test_fault_no_mpirun(tmp_path: Path) -> None:
    env = environment() | {"PATH": str(tmp_path)}
    found = failures(run([*ALONE, "--cells", "ddp/mpi,ddp/gloo"], env))
    assert "not on PATH" in found["mpirun"]
    assert "no mpirun" in found["ddp/mpi"]
    assert "ddp/gloo" not in found, "torchrun starts what needs no MPI"


def step(rank: int) -> dict[str, str]:
    """What a rank sees under `srun --mpi=none`."""
    step = {"PROCID": str(rank), "LOCALID": str(rank), "STEP_NUM_TASKS": "2", "STEP_ID": "0"}
    step |= {"NODEID": "0", "STEP_TASKS_PER_NODE": "2", "JOB_ID": "1", "STEP_NODELIST": "n[1-2]"}
    return {f"SLURM_{name}": value for name, value in step.items()}


def test_fault_wrong_mpi_plug_in(tmp_path: Path) -> None:
    command = [*ALONE, "--cells", "ddp/mpi", "--rendezvous-dir", str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(step(1)), stdout=subprocess.DEVNULL
    ) as other:
        found = failures(run(command, step(0)))
        assert other.wait(60) == 0
    assert "srun --mpi=pmix" in found["MPI"]
    assert "srun started 2 ranks" in found["ddp/mpi"]
    assert "sees a world of 1" in found["ddp/mpi"]
    assert list(tmp_path.iterdir()) == [], "the meeting leaves nothing behind"


def test_fault_another_mpis_mpirun() -> None:
    found = failures(run(mpich(2, *DOCTOR, "--cells", "ddp/gloo,ddp/mpi,horovod/mpi")))
    assert "hydra starts MPICH, but the library is Open MPI" in found["MPI"]
    assert "sees a world of 1" in found["ddp/mpi"]
    assert "sees a world of 1" in found["horovod/mpi"]
    assert "ddp/gloo" not in found


def of_another_build(folder: Path) -> dict[str, str]:
    """The installed Horovod, but for the note that its build left."""
    (folder / "horovod").mkdir()
    for path in Path(str(find_spec("horovod").origin)).parent.iterdir():  # type: ignore[union-attr]
        (folder / "horovod" / path.name).symlink_to(path)
    note = folder / "horovod" / "metadata.json"
    note.unlink()
    note.write_text('{"pytorch": "2.1.0"}')
    return {"PYTHONPATH": str(folder)}


def test_faults_of_one_launch_are_found_together(tmp_path: Path) -> None:
    core = str(min(os.sched_getaffinity(0)))
    options = ["--world-size", "3", "--dataset", "imagefolder", "--data-dir", str(tmp_path / "no")]
    rank = [*ALONE, NOTHING, *options]
    first, second = ["env", "OMP_NUM_THREADS=1", *rank], ["env", "OMP_NUM_THREADS=2", *rank]
    command = ["taskset", "-c", core, *mpirun(1)[:-1], *first, ":", "-n", "1", *second]
    done = run(command, of_another_build(tmp_path))
    found = failures(done)
    assert found.keys() == {"Horovod", "cores", "threads", "data", "launcher"}
    assert found["Horovod"].startswith("was built against torch 2.1.0, but torch ")
    assert "make setup" in found["Horovod"]
    assert "2 rank(s) of 1 thread(s) on 1 core(s)" in found["cores"]
    assert "--bind-to none" in found["cores"]
    assert "'OMP_NUM_THREADS': '1'" in found["threads"]
    assert "'OMP_NUM_THREADS': '2'" in found["threads"]
    assert "is no folder" in found["data"]
    assert "world_size=3 was asked for, but mpirun: 2 rank(s)" in found["launcher"]
    assert "--world-size 2" in found["launcher"]
    assert "... trying" not in done.stderr, "no cell was named"


def test_fault_a_dead_interface() -> None:
    command = mpirun(2, *DOCTOR, "--cells", "ddp/gloo")
    found = failures(run(command, {"GLOO_SOCKET_IFNAME": "nosuch0"}))
    assert "GLOO_SOCKET_IFNAME='nosuch0' names no interface of this host" in found["interface"]
    assert "ddp/gloo" in found, "and so it is"


def test_fault_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # below a file even root cannot write
    found = failures(run(mpirun(2, *DOCTOR, "--rendezvous-dir", str(tmp_path / "file" / "below"))))
    assert "cannot be written" in found["folder"]
    assert "--rendezvous-dir" in found["folder"]


def test_fault_half_set_variables() -> None:
    found = failures(run(ALONE, {"RANK": "0"}))
    assert "WORLD_SIZE is not: a half-set launch" in found["launcher"]
    assert "unset RANK" in found["launcher"]


def test_fault_a_rank_that_never_appears(tmp_path: Path) -> None:
    options = ["--json", "--limit-s", "20", "--rendezvous-dir", str(tmp_path)]
    found = failures(run([sys.executable, *IN_LINES, *options], step(0)))
    assert "rank 1 of 2 did not report" in found["ranks"]
    assert "the step has n[1-2], heard were " in found["ranks"]


def test_what_does_not_import_is_found(tmp_path: Path) -> None:
    """torchvision fails alone, as where the compiled part is missing, and imports where we help."""
    (tmp_path / "horovod").mkdir()
    broken = "raise ImportError('x.so: undefined symbol: _ZN5torch')"
    (tmp_path / "horovod" / "__init__.py").write_text(broken)
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "import torch\n"
        "if not hasattr(torch.ops.torchvision, 'nms'):\n"
        "    raise RuntimeError('operator torchvision::nms is not here')\n"
        "__version__ = '0.28.0+cu130'\n"
    )
    done = run([*ALONE, NOTHING], {"PYTHONPATH": str(tmp_path)})
    (failed,) = failures(done).items()
    assert failed[0] == "horovod"
    assert "undefined symbol" in failed[1]
    (found,) = [finding for finding in said(done, 1) if finding["name"] == "torchvision"]
    assert found["level"] == "warning"
    assert "operator torchvision::nms is not here" in found["text"]
    assert "make setup TORCH_INDEX_URL=" in found["cure"]


def test_a_try_that_takes_the_launch_down_leaves_an_answer(tmp_path: Path) -> None:
    """Rank 1's try is killed inside MPI; the launcher then ends every rank, the doctor's too."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, threading, time\n"
        "def die():\n"
        "    while 'mpi4py.MPI' not in sys.modules: time.sleep(0.05)\n"
        "    time.sleep(1)\n"
        "    os.kill(os.getpid(), 9)\n"
        "if 'bench.tools.doctor.exchange_worker' in sys.orig_argv and "
        "os.environ.get('OMPI_COMM_WORLD_RANK') == '1':\n"
        "    threading.Thread(target=die, daemon=True).start()\n"
    )
    found = failures(run(mpirun(2, *DOCTOR, "--cells", "ddp/mpi"), {"PYTHONPATH": str(tmp_path)}))
    assert "was ended" in found["doctor"]
    assert "trying ddp/mpi" in found["doctor"]


WRONG = (
    "--cells=ddp/pigeon",
    "--world-size=0",
    "--limit-s=x",
    "--dataset=svhn",
    "--bogus",
    "--one-rank=/nowhere.jsonl",
)


@pytest.mark.parametrize("option", WRONG)
def test_wrong_input_is_one_line_and_no_finding(option: str) -> None:
    done = run([sys.executable, *IN_LINES, "--json", option])
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
