"""Command `site new`, which writes a site file with what sinfo and scontrol report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from bench.config import UsageError
from bench.config.fields import NAME
from bench.options import Shown, option
from bench.shell import Command
from bench.study.disk import write_whole
from slurm.slurm_commands import ask_cluster
from slurm.until_settled import python

_TEMPLATE = Path(__file__).parent / "templates" / "site.toml"
# partition, nodes, sockets, cores, threads, time limit, generic resources, features
_COLUMNS = "%P|%D|%X|%Y|%Z|%l|%G|%f"
# how the names of AMD's begin among those that Slurm gives GPUs, as in gpu:mi250:8
_AMD = r"amd|mi\d|gfx|instinct|radeon|vega"


class NewSite(Command):
    """Write a site file NAME.toml that explains every key, with what sinfo and scontrol report."""

    name: str = option(..., "short name of the cluster", shown=Shown("NAME"), pattern=NAME)

    def run(self) -> None:
        path = Path(f"{self.name}.toml")
        if path.exists():
            cure = "choose another name, or remove it"
            raise UsageError(f"{path} exists and is never overwritten; {cure}")
        sinfo = ask_cluster(["sinfo", "--exact", "--noheader", f"--format={_COLUMNS}"]) or ""
        facts = read_cluster(sinfo, ask_cluster(["scontrol", "show", "config"]) or "")
        source = f"filled in from sinfo and scontrol on {date.today()}"
        if "node.cores" not in facts:
            source = "no nodes of sinfo's were understood: cores, nodes and transport are examples"
        write_whole(path, skeleton(self.name, facts))
        notes = (f"note: {note}" for note in facts.get("notes", ()))
        print(f"{path} written: {source}", *notes, sep="\n")
        print(f"correct it, then: {python()} -m slurm submit smoke --site {path} --dry-run")


class NodeKind:
    """A row of sinfo: nodes of one kind in a partition, described by the smallest of them."""

    def __init__(self, row: str) -> None:
        """Parse a row, in which '16+' means 16 or more. Raises ValueError if `row` is not one."""
        name, *numbers, self.limit, gres, features = (*row.split("|"), "")[:8]
        self.partition, self.is_default = name.rstrip("*"), name.endswith("*")
        self.is_mixed = "+" in "".join(numbers[1:])
        self.nodes, self.sockets, cores, self.threads = (int(x.rstrip("+")) for x in numbers)
        self.cores = self.sockets * cores
        gpus = re.findall(r"\bgpu(?::([^:,()]+))?:(\d+)", gres)  # 'gpu:a100:4(S:0-1),nvme:1'
        self.gpus = sum(int(count) for _, count in gpus)
        self.models = [model for model, _ in gpus if model]
        self.features = set(features.split(",")) - {"", "(null)"}

    def __str__(self) -> str:
        """Describe the nodes: '24 of 40 cores, 4 GPUs v100 (ib)' means 24 nodes of 40 cores."""
        gpus = f", {self.gpus} GPUs {' '.join(self.models)}" if self.gpus else ""
        named = f" ({', '.join(sorted(self.features))})" if self.features else ""
        return f"{self.nodes} of {self.cores} cores{gpus}{named}"


def read_cluster(sinfo: str, config: str) -> dict[str, Any]:
    """Return site values for one kind of node, by dotted key such as 'node.cores'.

    A kind with GPUs is preferred, then the default partition, then the partition with the most
    nodes, then the commonest kind. `notes` say how ranks were chosen, and name other kinds of node,
    other partitions and rows that do not parse. If no row parses, `notes` alone are left.
    `config` is the output of `scontrol show config`.
    """
    kinds, doubts = [], []
    for row in filter(None, map(str.strip, sinfo.splitlines())):
        try:
            kinds.append(NodeKind(row))
        except ValueError:
            doubts.append(f"a row of sinfo was not understood: {row[:80]!r}")
    if not kinds:
        return {"notes": doubts} if doubts else {}
    nodes = Counter[str]()
    for kind in kinds:
        nodes[kind.partition] += kind.nodes
    best = max(kinds, key=lambda k: (k.gpus > 0, k.is_default, nodes[k.partition], k.nodes))
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", config, re.MULTILINE))
    facts: dict[str, Any] = {
        "access.partition": best.partition,
        "node.cores": best.cores,
        "node.threads_per_core": best.threads,
        "limits.max_nodes": best.nodes,
        "slurm_min_version": settings.get("SLURM_VERSION", ""),
        **_ranks(best),
    }
    if name := settings.get("ClusterName"):
        facts["title"] = f"the cluster {name}"
    if limit := re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", best.limit):
        days, hours, minutes, _ = (int(part or 0) for part in limit.groups())
        facts["limits.max_minutes"] = (days * 24 + hours) * 60 + minutes
    notes: list[str] = facts["notes"]
    alike = [k for k in kinds if k.partition == best.partition]
    others = [k for k in alike if k != best]
    if others and len(best.models) == 1:
        facts["gpu.type"] = best.models[0]
        others = [k for k in others if best.models[0] in k.models]
    alone = sorted(best.features.difference(*(kind.features for kind in others)))
    if others and alone:
        facts["access.constraint"] = alone[0]
    if len(alike) > 1:
        several = f"several kinds of node: {'; '.join(map(str, alike))}. This file is of {best}"
        notes.append(f"partition {best.partition} has {several}")
    if len(best.models) > 1:
        models = ", ".join(best.models)
        notes.append(f"a node has several GPU models ({models}): name one in gpu.type")
    if best.is_mixed:
        exact = f"`sinfo --exact --partition={best.partition}` lists them"
        notes.append(f"nodes of {best.partition} differ, and the smallest are written; {exact}")
    if elsewhere := sorted(nodes.keys() - {best.partition}):
        notes.append(f"other partitions: {', '.join(elsewhere)}")
    return facts | {"notes": [*notes, *doubts]}


def _ranks(best: NodeKind) -> dict[str, Any]:
    """Return site values, with `notes` that explain them: one rank per GPU, else one per socket."""
    cpus, cores = best.cores * best.threads, best.cores // best.sockets
    if not best.gpus:
        rule = f"a rank for each of the {best.sockets} sockets, with a thread for each of its "
        ranks = {"cpu.ranks_per_node": best.sockets, "cpu.per_rank": cores * best.threads}
        ranks |= {"cpu.threads": cores}
        return {"transport": "gloo", **ranks, "notes": [f"{rule}{cores} cores"]}
    notes = [f"a rank for each of the {best.gpus} GPUs, with its share of the node's {cpus} CPUs"]
    if not best.models:
        notes.append("vendor 'cuda' is a guess: Slurm names no kind of GPU")
    amd = re.match(_AMD, "".join(best.models), re.IGNORECASE)
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
    """Return the text of a site file: the template with `facts`, by dotted key, filled in."""
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
