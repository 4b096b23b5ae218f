"""Checks across ranks: one world, distinct places, equal versions and threads, cores enough, nobody
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.config import UsageError
from bench.launch.hostlist import expand
from bench.tools.doctor.findings import Finding, failure, ok, warning

Facts = Mapping[str, Any]


def absent(
    there: Mapping[int, Facts], size: int, limit_s: float, env: Mapping[str, str]
) -> list[Finding]:
    """Ranks that did not report, and hosts of the Slurm step from which nobody did."""
    missing = sorted(set(range(size)) - set(there))
    if not missing:
        return []
    silent = sorted(
        set(_step_hosts(env)) - {str(facts["hostname"]).split(".")[0] for facts in there.values()}
    )
    where = f"; nothing from host {', '.join(silent)}" if silent else ""
    text = (
        f"rank {', '.join(map(str, missing))} of {size} did not report within {limit_s:g} s{where}"
    )
    return [
        failure(
            "ranks",
            text,
            "did they start, and do they see the folder? use --rendezvous-dir or a longer "
            "--limit-s",
        )
    ]


def _step_hosts(env: Mapping[str, str]) -> list[str]:
    try:
        return expand(env.get("SLURM_STEP_NODELIST", ""))
    except UsageError:
        return []  # a name that we cannot expand costs a hint, no more


def compare(ranks: Sequence[Facts]) -> list[Finding]:
    """Everything that must agree between ranks."""
    found = [*_one_world(ranks)]
    found += _equal(ranks, "versions", lambda r: r["versions"], "use one environment on all hosts")
    found += _equal(
        ranks,
        "threads",
        lambda r: r["default_threads"],
        "export the same OMP_NUM_THREADS on all ranks, or unset it",
    )
    for difference in _equal(
        ranks, "CPU", lambda r: (r["cpu"], r["cpus_on_node"]), "choose nodes of one kind"
    ):
        found.append(Finding("CPU", "warning", difference.text, difference.cure))
    return found or [
        ok(
            "ranks",
            f"{len(ranks)} on {len({r['hostname'] for r in ranks})} host(s), alike in versions, "
            f"threads and CPU",
        )
    ]


def _one_world(ranks: Sequence[Facts]) -> list[Finding]:
    sizes = {r["size"] for r in ranks}
    if len(sizes) > 1:
        return [
            failure(
                "ranks",
                f"disagree about the world's size: {sorted(sizes)}",
                "start all of them with one command",
            )
        ]
    places = [(r["hostname"], r["local_rank"]) for r in ranks]
    if len(set(places)) != len(places):
        return [
            failure(
                "ranks",
                f"share a place (host, local rank): {sorted(places)}",
                "give each host a name of its own",
            )
        ]
    wrong = {
        r["hostname"]
        for r in ranks
        if r["local_size"] != sum(o["hostname"] == r["hostname"] for o in ranks)
    }
    if wrong:
        text = f"local size and ranks present differ on {', '.join(sorted(wrong))}"
        return [failure("ranks", text, "give each host a name of its own, or use another launcher")]
    return []


def _equal(
    ranks: Sequence[Facts], name: str, of: Callable[[Facts], Any], cure: str
) -> list[Finding]:
    """The first rank that differs from rank 0."""
    first = of(ranks[0])
    for rank in ranks:
        if (other := of(rank)) != first:
            mine, theirs = _difference(first, other)
            return [
                failure(
                    name,
                    f"rank {ranks[0]['rank']} has {mine}, rank {rank['rank']} has {theirs}",
                    cure,
                )
            ]
    return []


def _difference(one: Any, other: Any) -> tuple[Any, Any]:
    """Both values, less what they have in common where they are tables."""
    if not isinstance(one, dict):
        return one, other
    keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    return {key: one.get(key) for key in keys}, {key: other.get(key) for key in keys}


def cores(ranks: Sequence[Facts], threads: int) -> list[Finding]:
    """Cores of each host against the threads of its ranks, and a spare one for each rank's
    exchange.
    """
    found: list[Finding] = []
    for host in dict.fromkeys(r["hostname"] for r in ranks):
        here = [r for r in ranks if r["hostname"] == host]
        found += _host_cores(host, here, threads)
    if found:
        return found
    least = min(len(r["affinity"]) for r in ranks)
    return [
        ok(
            "cores",
            f"{threads} thread(s) and a spare core for each rank, which may use {least} or more",
        )
    ]


def _host_cores(host: str, here: Sequence[Facts], threads: int) -> list[Finding]:
    usable = {core for r in here for core in r["affinity"]}
    need = len(here) * threads
    what = f"{host}: {len(here)} rank(s) of {threads} thread(s) on {len(usable)} core(s)"
    bound = next(
        (r for r in here if len(r["affinity"]) < min(threads + 1, r["cpus_on_node"])), None
    )
    if len(usable) < need:
        return [
            failure(
                "cores",
                f"{what}: they take turns, and so does what is measured",
                "start fewer ranks, or bind wider: --bind-to none",
            )
        ]
    if bound is not None:
        text = (
            f"{host}: rank {bound['rank']} is bound to {len(bound['affinity'])} core(s) for "
            f"{threads} thread(s) and its exchange"
        )
        return [warning("cores", text, "bind wider: mpirun --bind-to none, srun --cpus-per-task")]
    if len(usable) < need + len(here):
        return [
            warning(
                "cores",
                f"{what}: no spare core for each exchange",
                "use fewer ranks or threads where the machine has more cores to give",
            )
        ]
    return []


def devices(ranks: Sequence[Facts]) -> list[Finding]:
    """Enough GPUs for the ranks of each host, none of them seen by two ranks as its only one."""
    if not any(r["devices"] for r in ranks):
        return []
    for rank in ranks:
        count = len(rank["devices"])
        if count != 1 and count < rank["local_size"]:
            text = (
                f"rank {rank['rank']} sees {count} GPU(s) for {rank['local_size']} ranks of "
                f"{rank['hostname']}"
            )
            return [failure("GPUs", text, "ask for one GPU per rank: --gpus-per-node")]
    chosen = [r["devices"][0 if len(r["devices"]) == 1 else r["local_rank"]] for r in ranks]
    if len(set(chosen)) != len(chosen):
        return [
            failure(
                "GPUs",
                f"{len(chosen)} ranks would use {len(set(chosen))} GPU(s)",
                "ask for one GPU per rank",
            )
        ]
    return [ok("GPUs", f"one for each of {len(ranks)} ranks")]
