"""A site file to start from: every key explained, filled in from sinfo and scontrol."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, get_args

import tomlkit

from bench.backends.catalogue import CANDIDATE
from bench.config import UsageError
from bench.study.definition import Table
from bench.study.disk import write_whole
from slurm.site import Site
from slurm.slurm_commands import ask_cluster

# partition, nodes, sockets, cores, threads, time limit, generic resources
_COLUMNS = "%P|%D|%X|%Y|%Z|%l|%G"


def write_skeleton(name: str) -> tuple[Path, str]:
    """Write NAME.toml in this folder; it, and where its values are from.

    Raises UsageError if it is there, or the name will not do.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise UsageError(f"{name!r} also names a file; use lower-case letters, digits, '-' and '_'")
    path = Path(f"{name}.toml")
    sinfo = ask_cluster(["sinfo", "--noheader", f"--format={_COLUMNS}"])
    facts = read_cluster(sinfo or "", ask_cluster(["scontrol", "show", "config"]) or "")
    try:
        write_whole(path, skeleton(name, facts), replace=False)
    except FileExistsError:
        cure = "choose another name, or remove it"
        raise UsageError(f"{path} exists and is never overwritten; {cure}") from None
    return path, _source(facts)


def _source(facts: Mapping[str, Any]) -> str:
    if facts:
        return f"filled in from sinfo and scontrol on {date.today()}"
    return "sinfo did not answer, so its cores, nodes and transport are examples"


def read_cluster(sinfo: str, config: str) -> dict[str, Any]:
    """Values by dotted key: of the widest partition with GPUs, else of the default one."""
    rows = [line.strip().split("|") for line in sinfo.splitlines()]
    rows = [row for row in rows if len(row) == 7 and all(map(str.isdecimal, row[1:5]))]
    if not rows:
        return {}
    partition, nodes, sockets, cores, threads, limit, gres = max(
        rows, key=lambda row: (_gpus(row[6]) > 0, row[0].endswith("*"), int(row[1]))
    )
    gpus, cores_of_node = _gpus(gres), int(sockets) * int(cores)
    found: dict[str, Any] = {
        "access.partition": partition.rstrip("*"),
        "node.cores": cores_of_node,
        "node.threads_per_core": int(threads),
        "node.gpus": gpus,
        "node.vendor": "cuda" if gpus else "none",
        "transport": "nccl" if gpus else "gloo",
        "cpu.per_rank": max(1, cores_of_node * int(threads) // (gpus or 1)),
        "limits.max_nodes": int(nodes),
    }
    if (most := _minutes(limit)) is not None:
        found["limits.max_minutes"] = most
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", config, re.MULTILINE))
    if "ClusterName" in settings:
        found["title"] = f"the cluster {settings['ClusterName']}"
    if "SLURM_VERSION" in settings:
        found["slurm_min_version"] = settings["SLURM_VERSION"]
    return found


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


def skeleton(name: str, facts: Mapping[str, Any]) -> str:
    """The text of a valid site file; what is not known is commented out with its default."""
    values = {"name": name, "scheduler": "slurm", "launch": "srun", "title": f"the cluster {name}"}
    guesses = {"node.cores": 64, "limits.max_nodes": 4, "transport": "gloo"}
    head = f"# Site {name!r}: {_source(facts)}."
    head += " Correct what is wrong, take out the '# ' of what you need."
    text = "\n".join([head, *_keys(Site, "", {**values, **guesses, **facts})]) + "\n"
    Site(**tomllib.loads(text))  # ours to get right, whatever the cluster answers
    return text


def _keys(kind: type[Table], prefix: str, values: Mapping[str, Any]) -> list[str]:
    """Keys first, then tables, as TOML wants it."""
    plain, tables = [], []
    for name, field in kind.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, Table):
            tables += ["", f"[{name}]  # {field.description}", *_keys(nested, f"{name}.", values)]
        elif name in ("env", "env_per_backend"):
            title = "[env]" if name == "env" else f"# [{name}.{CANDIDATE}]"
            tables += ["", f"{title}  # {field.description}", '# NAME = "value"']
        else:
            choices = ", ".join(str(c) for c in get_args(nested) if isinstance(c, str))
            plain += [f"# {field.description}" + (f" (one of: {choices})" if choices else "")]
            if (key := prefix + name) in values:
                plain += [tomlkit.dumps({name: values[key]}).rstrip()]
            else:
                default = field.get_default(call_default_factory=True)
                plain += [f"# {name} = {'...' if default is None else json.dumps(default)}"]
    return plain + tables
