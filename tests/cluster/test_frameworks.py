"""Both frameworks over Gloo and over MPI under srun: across nodes, uneven, with ranks in any order,
two jobs at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.record import Run
from tests.bench.ranks import thorough
from tests.cluster import jobs, steps
from tests.cluster.steps import (
    CELLS,
    EACH_CELL,
    PLUG_IN,
    SHORT,
    Step,
    bench,
    cell,
    finish,
    places,
    run,
)

pytestmark = pytest.mark.cluster


def test_two_nodes_end_with_the_same_parameters(tmp_path: Path) -> None:
    """At two ranks all four cells agree bit for bit, as they do on one machine."""
    digests = set()
    for backend, transport in (*CELLS, ("handwritten", "mpi")):
        srun = ["-N2", "-n2", "-w", "n1,n2", f"--mpi={PLUG_IN[transport]}"]
        result = finish(
            tmp_path / f"{backend}-{transport}.jsonl", srun, [*SHORT, *cell(backend, transport, 2)]
        )
        assert places(result) == [("n1", 0, 1), ("n2", 0, 1)]
        assert {rank["source"] for rank in result.host["ranks"]} == {"srun"}
        assert result.host["job"]["SLURM_STEP_NODELIST"] == "n[1-2]"
        digests.add(result.end["parameters_sha256"])
    srun = ["-N2", "-n4", "--ntasks-per-node=2", "-w", "n1,n2", "--mpi=pmix"]
    srun += ["--distribution=cyclic"]
    served = [*SHORT, *cell("ps", "mpi", 2), "--servers", "2", "--bucket-mib", "0"]
    result = finish(tmp_path / "ps.jsonl", srun, served)
    assert [rank["hostname"] for rank in result.host["ranks"]] == ["n1", "n2"]
    assert [server["hostname"] for server in result.host["servers"]] == ["n1", "n2"]
    digests.add(result.end["parameters_sha256"])
    assert len(digests) == 1
    left = {path.suffix or path.name for path in tmp_path.iterdir()}
    assert left == {".jsonl", ".out", "user_code"}, "nothing of the ranks' meeting"


@pytest.mark.parametrize(("backend", "transport"), EACH_CELL)
def test_uneven_nodes(tmp_path: Path, backend: str, transport: str) -> None:
    """Three ranks on one node and one on each of two;
    rank 0 is not on the first node of the list.
    """
    places_file = tmp_path / "places"
    places_file.write_text("n3\nn1\nn1\nn1\nn2\n")
    srun = [
        "-N3",
        "-n5",
        "--distribution=arbitrary",
        f"--nodelist={places_file}",
        f"--mpi={PLUG_IN[transport]}",
    ]
    result = finish(tmp_path / "run.jsonl", srun, [*SHORT, *cell(backend, transport, 5)])
    assert places(result) == [("n3", 0, 1), ("n1", 0, 3), ("n1", 1, 3), ("n1", 2, 3), ("n2", 0, 1)]
    assert result.end["samples"] == 9 * 5 * 8


@pytest.mark.parametrize("transport", ["gloo", thorough("mpi")])
def test_ranks_that_alternate_between_nodes(tmp_path: Path, transport: str) -> None:
    srun = [
        "-N2",
        "-n4",
        "--ntasks-per-node=2",
        "-w",
        "n1,n2",
        "--distribution=cyclic",
        f"--mpi={PLUG_IN[transport]}",
    ]
    result = finish(tmp_path / "run.jsonl", srun, [*SHORT, *cell("horovod", transport, 4)])
    assert places(result) == [("n1", 0, 2), ("n2", 0, 2), ("n1", 1, 2), ("n2", 1, 2)]


@pytest.mark.parametrize("transport", ["mpi", thorough("gloo")])
def test_three_jobs_share_their_nodes(tmp_path: Path, transport: str) -> None:
    """No port is chosen in advance, so none is taken;
    the jobs meet in one folder and do not mix.
    """
    srun = ["-N2", "-n2", "-w", "n1,n2", f"--mpi={PLUG_IN[transport]}"]
    started = [
        Step(
            tmp_path / f"{number}.jsonl",
            srun,
            [*SHORT, "--windows", "40", *cell(backend, transport, 2)],
        )
        for number, backend in enumerate(("ddp", "horovod", "horovod"))
    ]
    results = [step.end() for step in started]
    assert [result.problem for result in results] == [None] * len(started), [
        step.output for step in started
    ]
    assert {result.hosts for result in results} == {("n1", "n2")}
    jobs = {result.host["job"]["SLURM_JOB_ID"] for result in results}
    assert len(jobs) == len(started)


_FENCE = """
import ctypes, re, sys, time
from mpi4py import MPI
library = re.search(r"\\S+/libpmix\\.so\\S*", open("/proc/self/maps").read())[0]
rank = MPI.COMM_WORLD.rank
for late in (0, 1):
    MPI.COMM_WORLD.Barrier()
    time.sleep(rank == late)
    begun = time.perf_counter()
    assert ctypes.CDLL(library).PMIx_Fence(None, 0, None, 0) == 0
    print("waited" if time.perf_counter() - begun > 0.5 else "went on", rank, late, flush=True)
"""


def test_no_rank_leaves_a_fence_before_the_last_has_come() -> None:
    """MPI_Init ends with such a fence: one that leaks lets the first message meet a rank that
    cannot take it yet, and a run in a hundred ends with a segmentation fault.
    """
    srun = ["srun", "-K1", "-N2", "-n2", "-w", "n1,n2", "--mpi=pmix"]
    result = run([*srun, sys.executable, "-c", _FENCE])
    assert result.returncode == 0, result.stderr
    said = {line for line in result.stdout.splitlines() if line.startswith(("waited", "went"))}
    assert said == {"waited 1 0", "went on 0 0", "waited 0 1", "went on 1 1"}


def test_mpirun_inside_a_job(tmp_path: Path) -> None:
    """Its ranks inherit the daemons' step, one task per node, which is not theirs."""
    as_root = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
    command = [
        *as_root,
        "mpirun",
        "-n",
        "4",
        "--bind-to",
        "none",
        *bench(*SHORT, *cell("horovod", "mpi", 4)),
    ]
    job = jobs.submit(
        tmp_path, ["-N2", "--ntasks-per-node=2", "-w", "n1,n2"], [("run.jsonl", command)]
    )
    result = finished_job(job, tmp_path)
    assert places(result) == [("n1", 0, 2), ("n1", 1, 2), ("n2", 0, 2), ("n2", 1, 2)]
    assert {rank["source"] for rank in result.host["ranks"]} == {"mpirun"}


def test_torchrun_inside_a_job(tmp_path: Path) -> None:
    agents = [
        "srun",
        "-n2",
        "--ntasks-per-node=1",
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes=2",
        "--nproc-per-node=2",
    ]
    meeting = ["--rdzv-backend=c10d", "--rdzv-endpoint=n1:29400", "--rdzv-id=test"]
    command = [*agents, *meeting, "-m", "bench", *SHORT, *cell("ddp", "gloo", 4)]
    result = finished_job(
        jobs.submit(
            tmp_path, ["-N2", "--ntasks-per-node=2", "-w", "n1,n2"], [("run.jsonl", command)]
        ),
        tmp_path,
    )
    assert sorted(places(result)) == [("n1", 0, 2), ("n1", 1, 2), ("n2", 0, 2), ("n2", 1, 2)]
    assert {rank["source"] for rank in result.host["ranks"]} == {"torchrun"}


def finished_job(job: str, folder: Path) -> Run:
    jobs.wait_for(job, ["COMPLETED", "FAILED"])
    result = steps.recorded_once(folder / "run.jsonl")
    assert result.problem is None, f"{result.problem}\n{(folder / 'job.out').read_text()}"
    return result


def test_a_request_for_gpus_is_granted() -> None:
    """In name only: what a job template asks for can be tried here."""
    done = steps.run(
        ["srun", "-N2", "-n2", "--gpus-per-node=2", "printenv", "CUDA_VISIBLE_DEVICES"]
    )
    assert done.stdout.split() == ["0,1", "0,1"], done.stderr
