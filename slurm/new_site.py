"""A site file to start from: every key explained, filled in from sinfo and scontrol."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple, get_args

import tomlkit

from bench.study.definition import StrictTable
from slurm.site import Site
from slurm.slurm_commands import ask_cluster

# partition, nodes, sockets, cores, threads, time limit, generic resources, features
_COLUMNS = "%P|%D|%X|%Y|%Z|%l|%G|%f"
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


class NodeKind(NamedTuple):
    """Nodes of one kind in a partition, a row of sinfo; counts are those of the smallest node."""

    partition: str
    is_default: bool
    nodes: int
    sockets: int
    cores: int  # of a socket
    threads: int  # of a core
    limit: str
    gres: str
    features: frozenset[str]
    is_mixed: bool  # Slurm merged nodes that differ into this row

    def __str__(self) -> str:
        """Say how many nodes of what: '24 of 40 cores and gpu:v100:4 (ib, v100)'."""
        more = "or more " if self.is_mixed else ""
        gpus = f" and {self.gres.partition('(')[0]}" if _gpus(self.gres) else ""
        features = ", ".join(sorted(self.features - {"(null)"}))
        named = f" ({features})" if features else ""
        return f"{self.nodes} of {self.sockets * self.cores} {more}cores{gpus}{named}"


def read_skeleton(name: str) -> tuple[str, list[str]]:
    """Return the text of a site file, and lines that say where its values are from."""
    sinfo = ask_cluster(["sinfo", "--exact", "--noheader", f"--format={_COLUMNS}"])
    facts, guessed = read_cluster(sinfo or "", ask_cluster(["scontrol", "show", "config"]) or "")
    if "node.cores" in facts:
        source = f"filled in from sinfo and scontrol on {date.today()}"
    else:
        silent = "sinfo did not answer" if not sinfo else "no row of sinfo was understood"
        source = f"{silent}, so its cores, nodes and transport are examples"
    return skeleton(name, facts, guessed), [source, *facts.get("notes", ())]


def read_cluster(sinfo: str, config: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read values by dotted key: of the widest partition with GPUs, else of the default one, and
    there of the commonest kind of node. Also returns how those were chosen that Slurm does not say.

    `notes` name what was left out: other kinds of node, other partitions, rows that do not parse.
    """
    rows = {line: _kind(line) for line in sinfo.splitlines() if line.strip()}
    kinds = [kind for kind in rows.values() if kind is not None]
    doubts = [
        f"a row of sinfo was not understood: {r[:80]!r}" for r, kind in rows.items() if not kind
    ]
    if not kinds:
        return ({"notes": doubts} if doubts else {}), {}
    nodes = Counter[str]()
    for kind in kinds:
        nodes[kind.partition] += kind.nodes
    best = max(kinds, key=lambda k: (_gpus(k.gres) > 0, k.is_default, nodes[k.partition], k.nodes))
    facts: dict[str, Any] = {
        "access.partition": best.partition,
        "node.cores": best.sockets * best.cores,
        "node.threads_per_core": best.threads,
        "limits.max_nodes": best.nodes,
    }
    ranks = _gpu_ranks(facts, best.gres) if _gpus(best.gres) else _cpu_ranks(facts, best.sockets)
    facts |= ranks[0]
    facts |= _one_kind(best, [k for k in kinds if k.partition == best.partition and k != best])
    facts["notes"] = [*facts["notes"], *_choices(best, kinds), *doubts]
    if (most := _minutes(best.limit)) is not None:
        facts["limits.max_minutes"] = most
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", config, re.MULTILINE))
    if "ClusterName" in settings:
        facts["title"] = f"the cluster {settings['ClusterName']}"
    if "SLURM_VERSION" in settings:
        facts["slurm_min_version"] = settings["SLURM_VERSION"]
    return facts, ranks[1]


def _kind(line: str) -> NodeKind | None:
    """Read a row of sinfo, whose '16+' says that nodes differ and have 16 or more; None if none."""
    row = line.strip().split("|")
    counts = [re.fullmatch(r"(\d+)(\+?)", word) for word in row[1:5]]
    if len(row) not in (7, 8) or not all(counts):
        return None
    nodes, sockets, cores, threads = (int(match[1]) for match in counts if match)
    features = frozenset(row[7].split(",")) if row[7:] else frozenset[str]()
    merged = any(match[2] for match in counts if match)
    return NodeKind(
        partition=row[0].rstrip("*"),
        is_default=row[0].endswith("*"),
        nodes=nodes,
        sockets=sockets,
        cores=cores,
        threads=threads,
        limit=row[5],
        gres=row[6],
        features=features,
        is_mixed=merged,
    )


def _one_kind(best: NodeKind, others: Sequence[NodeKind]) -> dict[str, str]:
    """Make a job ask for the chosen kind of node where its partition has several."""
    names = re.findall(r"\bgpu:([^:,()]+):\d", best.gres)
    by_type = others and len(names) == 1
    alike = [
        k for k in others if not by_type or re.search(rf"\bgpu:{re.escape(names[0])}:", k.gres)
    ]
    alone = sorted(best.features - {"(null)"}.union(*(kind.features for kind in alike)))
    facts = {"gpu.type": names[0]} if by_type else {}
    return facts | ({"access.constraint": alone[0]} if alike and alone else {})


def _choices(best: NodeKind, kinds: Sequence[NodeKind]) -> Iterator[str]:
    """Say what was chosen among several kinds of node and several partitions."""
    alike = [str(kind) for kind in kinds if kind.partition == best.partition]
    if len(alike) > 1:
        several = f"partition {best.partition} has several kinds of node: {'; '.join(alike)}"
        yield f"{several}. This file is of {best}"
    if len(models := re.findall(r"\bgpu:([^:,()]+):\d", best.gres)) > 1:
        yield f"a node has several GPU models ({', '.join(models)}): name one in gpu.type"
    if best.is_mixed:
        differ = f"nodes of {best.partition} differ, and the smallest are written"
        yield f"{differ}; `sinfo --exact --partition={best.partition}` lists them"
    if others := sorted({kind.partition for kind in kinds} - {best.partition}):
        yield f"other partitions: {', '.join(others)}"


def _gpu_ranks(node: Mapping[str, Any], gres: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Plan a rank for each GPU, with its share of the CPUs."""
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
    """Plan a rank for each socket, with a thread for each of its cores."""
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
    """Count the GPUs: 'gpu:a100:4(S:0-1),nvme:1' -> 4."""
    return sum(int(n) for n in re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", gres))


def _minutes(limit: str) -> int | None:
    """Convert a time limit to minutes: '2-00:00:00' -> 2880; None for 'infinite'."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes or None


def skeleton(name: str, facts: Mapping[str, Any], guessed: Mapping[str, str]) -> str:
    """Write the text of a valid site file; what is not known is commented out with its default."""
    values = {"name": name, "scheduler": "slurm", "launch": "srun", "title": f"the cluster {name}"}
    guesses = {"node.cores": 64, "limits.max_nodes": 4, "transport": "gloo"}
    head = f"# Site {name!r}, written on {date.today()}."
    head += " Correct what is wrong, take out the '# ' of what you need."
    keys = explained(Site, {**values, **guesses, **facts}, {**EXAMPLES, **_how(guessed)})
    text = "\n".join([head, *keys]) + "\n"
    Site(**tomllib.loads(text))  # ours to get right, whatever the cluster answers
    return text


def _how(guessed: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {key: (f"chosen: {why}",) for key, why in guessed.items()}


def explained(
    kind: type[StrictTable],
    values: Mapping[str, Any],
    more: Mapping[str, tuple[str, ...]],
    prefix: str = "",
) -> list[str]:
    """Write lines of TOML: keys first, then tables, as it wants them.

    `values` by dotted key are set, other keys commented out with their default; `more`: further
    lines of comment on a key. A table that may be left out is, unless it has a value.
    """
    plain, tables = [], []
    for name, field in kind.model_fields.items():
        key, about = prefix + name, field.description
        kinds = [t for t in (field.annotation, *get_args(field.annotation)) if isinstance(t, type)]
        nested = next((t for t in kinds if issubclass(t, StrictTable)), None)
        if nested:
            is_set = nested is field.annotation or any(v.startswith(f"{key}.") for v in values)
            lines = explained(nested, values, more, f"{key}.")
            tables += ["", f"{'' if is_set else '# '}[{name}]  # {about}"]
            tables += lines if is_set else [f"# {line.removeprefix('# ')}" for line in lines]
        elif key in values and isinstance(values[key], dict):
            tables += ["", f"[{name}]  # {about}", *_lines(values[key])]
        elif field.default == {}:
            tables += ["", f"[{name}]  # {about}", '# NAME = "value"']
        else:
            choices = ", ".join(str(c) for c in get_args(field.annotation) if isinstance(c, str))
            plain += [f"# {about}" + (f" (one of: {choices})" if choices else "")]
            plain += [f"# {line}" for line in more.get(key, ())]
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            unset = f"# {name} = {'...' if default is None else json.dumps(default)}"
            plain += _lines({name: values[key]}) if key in values else [unset]
    return plain + tables


def _lines(values: Mapping[str, Any]) -> list[str]:
    return tomlkit.dumps(values).rstrip().splitlines()
