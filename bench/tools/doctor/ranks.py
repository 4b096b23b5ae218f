"""Checks of a launch: its launcher, whose MPI it starts, and ranks that are one equal world."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.backends.catalogue import cells
from bench.launch.world import Launch
from bench.record.quiet import Others
from bench.tools.doctor import places
from bench.tools.doctor.findings import Finding, failure, ok, warning

RankFacts = Mapping[str, Any]
_OWN_NAME = "give each host a name of its own, or use another launcher"

# launcher -> how the MPI libraries that it starts begin their version text
_STARTS = {"mpirun": ("Open MPI",), "hydra": ("MPICH", "Intel", "MVAPICH")}
_STARTS |= {"mpirun_rsh": ("MVAPICH",), "pals": ("CRAY", "MPICH")}
NO_MPI = ("torchrun", "horovodrun")  # they start no MPI at all: Gloo and NCCL only
# a word of what mpirun says of itself -> its MPI
_FAMILIES = {"Open MPI": "Open MPI", "OpenRTE": "Open MPI", "HYDRA": "MPICH"}
_FAMILIES |= {"Intel": "Intel", "MVAPICH": "MVAPICH"}


def world(launch: Launch, ranks: int | None) -> Finding:
    """What the launcher's variables say, against the number that was asked for."""
    alone = launch.source == "none"
    text = f"{launch.source}: {launch.size} rank(s)"
    text = "no launcher: this process is alone" if alone else text
    if ranks is None or ranks == launch.size:
        return ok("launcher", text)
    cure = f"use --world-size {launch.size} or start {ranks} ranks"
    if alone:
        cure = f"start it as: mpirun -n {ranks} --bind-to none python -m bench doctor ..."
    return failure("launcher", f"world_size={ranks} was asked for, but {text}", cure)


def library(launch: Launch, mpi: str, env: Mapping[str, str]) -> Finding:
    """Does this launcher start this MPI? If not, each rank would be a world of its own."""
    gloo = f"--cells {','.join(cell for cell in cells() if cell.endswith('/gloo'))}"
    if launch.source in NO_MPI:
        return ok("MPI", f"{launch.source} starts no MPI ({mpi}): Gloo only")
    if launch.source == "srun":
        if not mpi.startswith("Open MPI") or "PMIX_NAMESPACE" in env:
            return ok("MPI", f"srun with {mpi}")
        text = f"srun was told no PMIx, and {mpi} needs it"
        return failure("MPI", text, f"use srun --mpi=pmix, or {gloo}")
    starts = _STARTS.get(launch.source, ("",))
    if mpi.startswith(starts):
        return ok("MPI", mpi)
    text = f"{launch.source} starts {starts[0]}, but the library is {mpi}"
    return failure("MPI", text, f"use the mpirun of {mpi}, or {gloo}")


def mpirun(path: str | None, version: str, mpi: str | None) -> Finding:
    """The mpirun on PATH against the library; `version` is what mpirun says of itself."""
    if path is None:
        cure = "activate the environment (. .venv/bin/activate), or run make setup"
        return failure("mpirun", "is not on PATH", cure)
    family = next((name for word, name in _FAMILIES.items() if word in version), "an unknown MPI")
    number = (re.findall(r"\d+(?:\.\d+)+", version) or [""])[0]
    text = f"{path} is {family} {number}".rstrip()
    if mpi is None or (mpi.startswith(family) and number in mpi):
        return ok("mpirun", text)
    unequal = warning if mpi.startswith(family) else failure
    cure = "put the mpirun that belongs to it first on PATH"
    return unequal("mpirun", f"{text}, but the library is {mpi}", cure)


def absent(
    present: Mapping[int, RankFacts], size: int, limit_s: float, env: Mapping[str, str]
) -> list[Finding]:
    """Ranks that did not report, and under Slurm the hosts to look for them on."""
    missing = ", ".join(str(rank) for rank in range(size) if rank not in present)
    if not missing:
        return []
    text = f"rank {missing} of {size} did not report within {limit_s:g} s"
    if hosts := env.get("SLURM_STEP_NODELIST"):
        heard = sorted({str(facts["hostname"]) for facts in present.values()})
        text += f"; the step has {hosts}, heard were {', '.join(heard)}"
    cure = "did they start, and do they see the folder? use --rendezvous-dir or a longer --limit-s"
    return [failure("ranks", text, cure)]


def compare(ranks: Sequence[RankFacts]) -> list[Finding]:
    """Everything that must agree between ranks."""
    hosts = len({r["hostname"] for r in ranks})
    alike = f"{len(ranks)} on {hosts} host(s), alike in versions, threads and CPU"
    return [*_unlike(ranks)] or [ok("ranks", alike)]


def _unlike(ranks: Sequence[RankFacts]) -> Iterator[Finding]:
    sizes = sorted({r["size"] for r in ranks})
    seats = sorted((r["hostname"], r["local_rank"]) for r in ranks)
    present = Counter(r["hostname"] for r in ranks)
    wrong = sorted({r["hostname"] for r in ranks if r["local_size"] != present[r["hostname"]]})
    if len(sizes) > 1:
        text = f"disagree about the world's size: {sizes}"
        yield failure("ranks", text, "start all of them with one command")
    elif len(set(seats)) < len(seats):
        yield failure("ranks", f"share a place (host, local rank): {seats}", _OWN_NAME)
    elif wrong:
        text = f"local size and ranks present differ on {', '.join(wrong)}"
        yield failure("ranks", text, _OWN_NAME)
    if text := _differ(ranks, lambda r: r["versions"]):
        yield failure("versions", text, "use one environment on all hosts")
    if text := _differ(ranks, lambda r: r["default_threads"]):
        yield failure("threads", text, "export the same OMP_NUM_THREADS on all ranks, or unset it")
    if text := _differ(ranks, lambda r: {"CPU": r["cpu"], "cores": r["cpus_on_node"]}):
        yield warning("CPU", text, "choose nodes of one kind")


def _differ(ranks: Sequence[RankFacts], of: Callable[[RankFacts], dict[str, Any]]) -> str:
    """In what the first rank that differs from rank 0 does; empty where all are alike."""
    first = of(ranks[0])
    other = next((r for r in ranks if of(r) != first), ranks[0])
    second = of(other)
    keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    one, two = ({key: table.get(key) for key in keys} for table in (first, second))
    return f"rank {ranks[0]['rank']} has {one}, rank {other['rank']} has {two}" if keys else ""


def cores(ranks: Sequence[RankFacts], threads: int) -> list[Finding]:
    """Cores of each host for the threads of its ranks, and a spare one for each exchange."""
    by_host: dict[str, list[RankFacts]] = {}
    for r in ranks:
        by_host.setdefault(r["hostname"], []).append(r)
    findings = [f for host, local in by_host.items() for f in _host_cores(host, local, threads)]
    least = min(len(r["affinity"]) for r in ranks)
    text = f"{threads} thread(s) and a spare core for each rank, which may use {least} or more"
    return findings or [ok("cores", text)]


def _host_cores(host: str, local: Sequence[RankFacts], threads: int) -> Iterator[Finding]:
    usable = len({core for r in local for core in r["affinity"]})
    load = f"{host}: {len(local)} rank(s) of {threads} thread(s) on {usable} core(s)"
    bound = [r for r in local if len(r["affinity"]) < min(threads + 1, r["cpus_on_node"])]
    if usable < len(local) * threads:
        text = f"{load}: they take turns, and so does what is measured"
        yield failure("cores", text, "start fewer ranks, or bind wider: --bind-to none")
    elif bound:
        text = f"{host}: rank {bound[0]['rank']} is bound to {len(bound[0]['affinity'])} core(s) "
        text += f"for {threads} thread(s) and its exchange"
        yield warning("cores", text, "bind wider: mpirun --bind-to none, srun --cpus-per-task")
    elif usable < len(local) * (threads + 1):
        text = f"{load}: no spare core for each exchange, so a full machine is measured"
        yield warning("cores", text, "with fewer ranks or threads some would stay free")


def quiet(ranks: Sequence[RankFacts]) -> list[Finding]:
    """Does anybody else use the hosts' cores? A run in such company measures both."""
    by_host = {o["hostname"]: Others(**o) for r in reversed(ranks) if (o := r["others"])}
    cure = "stop them, or take a node for yourself: srun --exclusive"
    if noisy := [warning("others", str(o), cure) for o in by_host.values() if o.noisy]:
        return noisy
    most = max((o.share for o in by_host.values()), default=None)
    return [] if most is None else [ok("others", f"take {100 * most:.1f} % of the processor time")]


def devices(ranks: Sequence[RankFacts]) -> list[Finding]:
    """Enough GPUs for the ranks of each host, none seen by two ranks as its only one."""
    if not any(r["devices"] for r in ranks):
        return []
    cure = "ask for one GPU per rank: --gpus-per-node"
    for r in ranks:
        count = len(r["devices"])
        if count != 1 and count < r["local_size"]:
            text = f"rank {r['rank']} sees {count} GPU(s) for {r['local_size']} ranks of "
            return [failure("GPUs", text + r["hostname"], cure)]
    used = {r["devices"][places.device(r)] for r in ranks}
    if len(used) != len(ranks):
        return [failure("GPUs", f"{len(ranks)} ranks would use {len(used)} GPU(s)", cure)]
    return [ok("GPUs", f"one for each of {len(ranks)} ranks")]
