"""A site file to start from: every key explained, filled in from sinfo and scontrol."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from slurm.explained import explained, new_file, write_new
from slurm.site import Site
from slurm.slurm_commands import ask_cluster

# partition, nodes, sockets, cores, threads, time limit, generic resources
_COLUMNS = "%P|%D|%X|%Y|%Z|%l|%G"
# how the names begin that Slurm gives GPUs, as in gpu:mi250:8
_VENDORS = {
    "rocm": r"amd|mi\d|gfx|instinct|radeon|vega",
    "cuda": r"nvidia|tesla|quadro|rtx|gtx|geforce|titan|[abhlptvk]\d|g[bh]\d|\d+g\.\d+gb"
    r"|ampere|hopper|volta|pascal|turing|blackwell",
}

# by dotted key, lines to copy
EXAMPLES: dict[str, tuple[str, ...]] = {
    "access.extra": ("example, mail: ['--mail-type=END,FAIL', '--mail-user=me@example.org']",),
    "setup.container": (
        "example, Apptainer: ['apptainer', 'exec', '--nv', '/shared/bench.sif']; with venv = ''",
    ),
    "launch_args": (
        "example, Pyxis: ['--container-image=/shared/bench.sqsh', '--container-mounts=/shared', "
        "'--container-workdir=/shared/horovod-vs-ddp']",
    ),
    "setup.prologue": (
        """example, conda: ['eval "$(conda shell.bash hook)"', 'conda activate NAME']; venv = ''""",
    ),
}


def write_skeleton(name: str) -> tuple[Path, str]:
    """Write NAME.toml in this folder; it, and where its values are from.

    Raises UsageError if it is there, or the name will not do.
    """
    path = new_file(name)
    sinfo = ask_cluster(["sinfo", "--noheader", f"--format={_COLUMNS}"])
    facts, guessed = read_cluster(sinfo or "", ask_cluster(["scontrol", "show", "config"]) or "")
    write_new(path, skeleton(name, facts, guessed))
    return path, _source(facts)


def _source(facts: Mapping[str, Any]) -> str:
    if facts:
        return f"filled in from sinfo and scontrol on {date.today()}"
    return "sinfo did not answer, so its cores, nodes and transport are examples"


def read_cluster(sinfo: str, config: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by dotted key: of the widest partition with GPUs, else of the default one; and for
    those that Slurm does not say by itself, how they were chosen.
    """
    rows = [line.strip().split("|") for line in sinfo.splitlines()]
    rows = [row for row in rows if len(row) == 7 and all(map(str.isdecimal, row[1:5]))]
    if not rows:
        return {}, {}
    partition, nodes, sockets, cores, threads, limit, gres = max(
        rows, key=lambda row: (_gpus(row[6]) > 0, row[0].endswith("*"), int(row[1]))
    )
    facts: dict[str, Any] = {
        "access.partition": partition.rstrip("*"),
        "node.cores": int(sockets) * int(cores),
        "node.threads_per_core": int(threads),
        "limits.max_nodes": int(nodes),
    }
    of_ranks = _gpu_ranks(facts, gres) if _gpus(gres) else _cpu_ranks(facts, int(sockets))
    facts |= of_ranks[0]
    if (most := _minutes(limit)) is not None:
        facts["limits.max_minutes"] = most
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", config, re.MULTILINE))
    if "ClusterName" in settings:
        facts["title"] = f"the cluster {settings['ClusterName']}"
    if "SLURM_VERSION" in settings:
        facts["slurm_min_version"] = settings["SLURM_VERSION"]
    return facts, of_ranks[1]


def _gpu_ranks(node: Mapping[str, Any], gres: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A rank for each GPU, with its share of the CPUs."""
    gpus, cpus = _gpus(gres), node["node.cores"] * node["node.threads_per_core"]
    rule = f"a rank for each of the {gpus} GPUs, with its share of the node's {cpus} CPUs"
    names = re.findall(r"\bgpu:([^:,()]+):\d", gres)
    vendor = next(
        (v for v, known in _VENDORS.items() if names and re.match(known, names[0], re.I)), ""
    )
    facts: dict[str, Any] = {
        "transport": "nccl",
        "node.gpus": gpus,
        "node.gpu": ", ".join(names),
        "node.vendor": vendor or "cuda",
        "cpu.ranks_per_node": gpus,
        "cpu.per_rank": max(1, cpus // gpus),
        "notes": [rule],
    }
    why = {"cpu.ranks_per_node": rule}
    if not vendor:
        named = f"{names[0]!r} is no name known here" if names else "Slurm names no kind of GPU"
        why["node.vendor"] = f"a guess: {named}"
    return facts, why


def _cpu_ranks(node: Mapping[str, Any], sockets: int) -> tuple[dict[str, Any], dict[str, str]]:
    """A rank for each socket, with a thread for each of its cores."""
    cores = node["node.cores"] // sockets
    rule = f"a rank for each of the {sockets} sockets, with a thread for each of its {cores} cores"
    facts: dict[str, Any] = {
        "transport": "gloo",
        "node.vendor": "none",
        "cpu.ranks_per_node": sockets,
        "cpu.per_rank": cores * node["node.threads_per_core"],
        "cpu.threads": cores,
        "notes": [rule],
    }
    return facts, {"cpu.ranks_per_node": rule}


def _gpus(gres: str) -> int:
    """'gpu:a100:4(S:0-1),nvme:1' -> 4."""
    return sum(int(n) for n in re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", gres))


def _minutes(limit: str) -> int | None:
    """'2-00:00:00' -> 2880; None for 'infinite'."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes or None


def skeleton(name: str, facts: Mapping[str, Any], guessed: Mapping[str, str]) -> str:
    """The text of a valid site file; what is not known is commented out with its default."""
    values = {"name": name, "scheduler": "slurm", "launch": "srun", "title": f"the cluster {name}"}
    guesses = {"node.cores": 64, "limits.max_nodes": 4, "transport": "gloo"}
    head = f"# Site {name!r}: {_source(facts)}."
    head += " Correct what is wrong, take out the '# ' of what you need."
    keys = explained(Site, {**values, **guesses, **facts}, {**EXAMPLES, **_how(guessed)})
    text = "\n".join([head, *keys]) + "\n"
    Site(**tomllib.loads(text))  # ours to get right, whatever the cluster answers
    return text


def _how(guessed: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {key: (f"chosen: {why}",) for key, why in guessed.items()}
