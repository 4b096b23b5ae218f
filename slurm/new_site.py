"""`site new`: a site file to start from, every key explained, filled in from sinfo and scontrol."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from bench.config import UsageError
from bench.options import Shown, option
from bench.shell import Command
from bench.study.disk import write_whole
from slurm.slurm_commands import ask_cluster
from slurm.until_settled import python

_TEMPLATE = Path(__file__).parent / "templates" / "site.toml"
# partition, nodes, sockets, cores, threads, time limit, generic resources, features
_COLUMNS = "%P|%D|%X|%Y|%Z|%l|%G|%f"
# how the names begin that Slurm gives GPUs, as in gpu:mi250:8
_AMD = r"amd|mi\d|gfx|instinct|radeon|vega"
_NVIDIA = (
    r"nvidia|tesla|quadro|[rg]tx|geforce|titan|[abhlptvk]\d|g[bh]\d|\d+g\.|ampere|hopper|volta"
)


class NewSite(Command):
    """Write NAME.toml, every key explained, filled in from sinfo and scontrol where they are."""

    name: str = option(..., "short name of the cluster", shown=Shown("NAME"))

    def run(self) -> None:
        name, path = self.name, Path(f"{self.name}.toml")
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
            cure = "use lower-case letters, digits, '-' and '_'"
            raise UsageError(f"{name!r} also names a file; {cure}")
        sinfo = ask_cluster(["sinfo", "--exact", "--noheader", f"--format={_COLUMNS}"]) or ""
        facts = read_cluster(sinfo, ask_cluster(["scontrol", "show", "config"]) or "")
        source = f"filled in from sinfo and scontrol on {date.today()}"
        if "node.cores" not in facts:
            silent = "no row of sinfo was understood" if sinfo else "sinfo did not answer"
            source = f"{silent}, so its cores, nodes and transport are examples"
        try:
            write_whole(path, skeleton(name, facts), replace=False)
        except FileExistsError:
            cure = "choose another name, or remove it"
            raise UsageError(f"{path} exists and is never overwritten; {cure}") from None
        notes = (f"note: {note}" for note in facts.get("notes", ()))
        print(f"{path} written: {source}", *notes, sep="\n")
        print(f"correct it, then: {python()} -m slurm submit smoke --site {path} --dry-run")


class NodeKind(NamedTuple):
    """Nodes of one kind in a partition, a row of sinfo; counts are those of the smallest node."""

    partition: str
    is_default: bool
    nodes: int
    sockets: int
    cores: int
    threads: int  # of a core
    limit: str
    gpus: int
    models: tuple[str, ...]  # of GPUs
    features: frozenset[str]
    is_mixed: bool  # Slurm merged nodes that differ into this row

    def __str__(self) -> str:
        """Say how many nodes of what: '24 of 40 cores and 4 GPUs v100 (ib, v100)'."""
        more = "or more " if self.is_mixed else ""
        gpus = f" and {' '.join([f'{self.gpus} GPUs', *self.models])}" if self.gpus else ""
        named = f" ({', '.join(sorted(self.features))})" if self.features else ""
        return f"{self.nodes} of {self.cores} {more}cores{gpus}{named}"


def read_cluster(sinfo: str, config: str) -> dict[str, Any]:
    """Read values by dotted key: of the widest partition with GPUs, else of the default one, and
    there of the commonest kind of node.

    `notes` say how ranks were chosen, and name what was left out: other kinds of node, other
    partitions, rows that do not parse.
    """
    rows = {line: _kind(line) for line in sinfo.splitlines() if line.strip()}
    kinds = [kind for kind in rows.values() if kind]
    doubts = [f"a row of sinfo was not understood: {r[:80]!r}" for r, k in rows.items() if not k]
    if not kinds:
        return {"notes": doubts} if doubts else {}
    nodes = Counter[str]()
    for kind in kinds:
        nodes[kind.partition] += kind.nodes
    best = max(kinds, key=lambda k: (k.gpus > 0, k.is_default, nodes[k.partition], k.nodes))
    facts: dict[str, Any] = {
        "access.partition": best.partition,
        "node.cores": best.cores,
        "node.threads_per_core": best.threads,
        "limits.max_nodes": best.nodes,
    }
    facts |= _ranks(best)
    alike = [k for k in kinds if k.partition == best.partition]
    others = [k for k in alike if k != best]
    if others and len(best.models) == 1:
        facts["gpu.type"] = best.models[0]
        others = [k for k in others if best.models[0] in k.models]
    if alone := sorted(best.features.difference(*(kind.features for kind in others))):
        facts |= {"access.constraint": alone[0]} if others else {}
    if len(alike) > 1:
        several = "; ".join(map(str, alike))
        several = f"partition {best.partition} has several kinds of node: {several}"
        facts["notes"].append(f"{several}. This file is of {best}")
    if len(best.models) > 1:
        models = ", ".join(best.models)
        facts["notes"].append(f"a node has several GPU models ({models}): name one in gpu.type")
    if best.is_mixed:
        differ = f"nodes of {best.partition} differ, and the smallest are written"
        exact = f"`sinfo --exact --partition={best.partition}` lists them"
        facts["notes"].append(f"{differ}; {exact}")
    if elsewhere := sorted(nodes.keys() - {best.partition}):
        facts["notes"].append(f"other partitions: {', '.join(elsewhere)}")
    facts["notes"] += doubts
    if limit := re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", best.limit):
        days, hours, minutes, _ = (int(part or 0) for part in limit.groups())
        facts["limits.max_minutes"] = (days * 24 + hours) * 60 + minutes
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", config, re.MULTILINE))
    if "ClusterName" in settings:
        facts["title"] = f"the cluster {settings['ClusterName']}"
    return facts | {"slurm_min_version": settings.get("SLURM_VERSION", "")}


def _kind(line: str) -> NodeKind | None:
    """Read a row of sinfo, whose '16+' says that nodes differ and have 16 or more; None if none."""
    row = line.strip().split("|")
    counts = [re.fullmatch(r"(\d+)(\+?)", word) for word in row[1:5]]
    if len(row) not in (7, 8) or not all(counts):
        return None
    nodes, sockets, cores, threads = (int(match[1]) for match in counts if match)
    gpus = re.findall(r"\bgpu(?::([^:,()]+))?:(\d+)", row[6])  # 'gpu:a100:4(S:0-1),nvme:1'
    return NodeKind(
        partition=row[0].rstrip("*"),
        is_default=row[0].endswith("*"),
        nodes=nodes,
        sockets=sockets,
        cores=sockets * cores,
        threads=threads,
        limit=row[5],
        gpus=sum(int(count) for _, count in gpus),
        models=tuple(model for model, _ in gpus if model),
        features=frozenset(",".join(row[7:]).split(",")) - {"", "(null)"},
        is_mixed=any(match[2] for match in counts if match),
    )


def _ranks(best: NodeKind) -> dict[str, Any]:
    """Plan a rank for each GPU, else for each socket, with its share of the CPUs."""
    cpus, cores = best.cores * best.threads, best.cores // best.sockets
    if not best.gpus:
        rule = f"a rank for each of the {best.sockets} sockets, with a thread for each of its "
        return {
            "transport": "gloo",
            "cpu.ranks_per_node": best.sockets,
            "cpu.per_rank": cores * best.threads,
            "cpu.threads": cores,
            "notes": [f"{rule}{cores} cores"],
        }
    notes = [f"a rank for each of the {best.gpus} GPUs, with its share of the node's {cpus} CPUs"]
    first = best.models[0] if best.models else ""
    amd = re.match(_AMD, first, re.IGNORECASE)
    if not amd and not re.match(_NVIDIA, first, re.IGNORECASE):
        unknown = f"{first!r} is no name known here" if first else "Slurm names no kind of GPU"
        notes.append(f"vendor 'cuda' is a guess: {unknown}")
    return {
        "transport": "nccl",
        "node.gpus": best.gpus,
        "node.gpu": ", ".join(best.models),
        "node.vendor": "rocm" if amd else "cuda",
        "cpu.ranks_per_node": best.gpus,
        "cpu.per_rank": max(1, cpus // best.gpus),
        "notes": notes,
    }


def skeleton(name: str, facts: Mapping[str, Any]) -> str:
    """Fill the template of a site file in; what is not known stays as it is there."""
    import tomlkit  # here: it takes a tenth of a second to load

    values = {"name": name, "title": f"the cluster {name}", **facts}
    lines, table = [], ""
    for line in _TEMPLATE.read_text().splitlines():
        head, key = re.match(r"\[(\w+)\]", line), re.match(r"(?:# )?(\w+) = ", line)
        table = f"{head[1]}." if head else table
        if key and f"{table}{key[1]}" in values:
            line = tomlkit.dumps({key[1]: values[f"{table}{key[1]}"]}).rstrip()
        lines.append(line)
    return "\n".join(lines) + "\n"
