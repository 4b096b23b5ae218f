"""A site file to start from: every key explained, filled in from what sinfo and scontrol say of the
cluster, if they are here.
"""

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
from slurm import slurm_commands
from slurm.site import Site

# partition, nodes, sockets, cores, threads, time limit, generic resources
_COLUMNS = "%P|%D|%X|%Y|%Z|%l|%G"


def write_skeleton(name: str) -> Path:
    """Write NAME.toml in this folder; raises UsageError if it is there or the name will not do."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise UsageError(f"{name!r} also names a file; use lower-case letters, digits, '-' and '_'")
    path = Path(f"{name}.toml")
    facts = read_cluster(
        slurm_commands.ask_cluster(["sinfo", "--noheader", f"--format={_COLUMNS}"]),
        slurm_commands.ask_cluster(["scontrol", "show", "config"]),
    )
    try:
        write_whole(path, skeleton(name, facts), replace=False)
    except FileExistsError:
        raise UsageError(
            f"{path} exists and is never overwritten; choose another name, or remove it"
        ) from None
    return path


def read_cluster(sinfo: str, config: str) -> dict[str, Any]:
    """Values by dotted key from what sinfo and scontrol say: of the widest partition with GPUs,
    else of the default one.
    """
    rows = [
        row
        for line in sinfo.splitlines()
        if len(row := line.strip().split("|")) == 7 and all(map(str.isdecimal, row[1:5]))
    ]
    if not rows:
        return {}
    partition, nodes, sockets, cores, threads, limit, gres = max(
        rows, key=lambda r: (_gpus(r[6]) > 0, r[0].endswith("*"), int(r[1]))
    )
    gpus = _gpus(gres)
    cpus = int(sockets) * int(cores) * int(threads)
    found: dict[str, Any] = {
        "access.partition": partition.rstrip("*"),
        "node.cores": int(sockets) * int(cores),
        "node.threads_per_core": int(threads),
        "node.gpus": gpus,
        "node.vendor": "cuda" if gpus else "none",
        "transport": "nccl" if gpus else "gloo",
        "cpu.per_rank": max(1, cpus // (gpus or 1)),
        "limits.max_nodes": int(nodes),
    }
    if (most := _minutes(limit)) is not None:
        found["limits.max_minutes"] = most
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", config, re.MULTILINE))
    if cluster := settings.get("ClusterName"):
        found["title"] = f"the cluster {cluster}"
    if (version := settings.get("SLURM_VERSION")) is not None:
        found["slurm_min_version"] = version
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
    """The text of a site file that is valid as it stands; what nobody filled in is commented out
    with its default.
    """
    guesses = {
        "title": f"the cluster {name}",
        "node.cores": 64,
        "limits.max_nodes": 1,
        "transport": "gloo",
    }
    values = {"name": name, "scheduler": "slurm", "launch": "srun", **guesses, **facts}
    source = (
        f"filled in from sinfo and scontrol on {date.today()}"
        if facts
        else "Slurm was not here to fill it in"
    )
    lines = [
        f"# Site {name!r}: {source}. Correct what is wrong, take out the '# ' of what you need."
    ]
    lines += _keys(Site, "", values)
    text = "\n".join(lines) + "\n"
    Site(**tomllib.loads(text))  # ours to get right, whatever the cluster answers
    return text


def _keys(kind: type[Table], prefix: str, values: Mapping[str, Any]) -> list[str]:
    """Keys first, then tables, as TOML wants it."""
    plain, tables = [], []
    for name, field in kind.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, Table):
            tables += ["", f"[{name}]  # {field.description}", *_keys(nested, f"{name}.", values)]
        elif name == "env_per_backend":
            tables += ["", f"# [{name}.{CANDIDATE}]  # {field.description}", '# NAME = "value"']
        elif name == "env":
            tables += ["", f"[{name}]  # {field.description}", '# NAME = "value"']
        else:
            choices = [str(c) for c in get_args(field.annotation) if isinstance(c, str)]
            plain += [
                f"# {field.description}" + (f" (one of: {', '.join(choices)})" if choices else "")
            ]
            if (key := prefix + name) in values:
                plain += [tomlkit.dumps({name: values[key]}).rstrip()]
            else:
                plain += [f"# {name} = {_example(field.get_default(call_default_factory=True))}"]
    return plain + tables


def _example(default: Any) -> str:
    return "..." if default is None else json.dumps(default)
