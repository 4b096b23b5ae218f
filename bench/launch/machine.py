"""Whether this machine is fit for a run, from the configuration alone, before torch loads."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.backends.catalogue import interface_variables
from bench.config import RunConfig, UsageError
from bench.config.datasets import DIGITS_SAMPLES
from bench.launch.world import Launch
from bench.missing import checkout

# private memory of a loading process that has imported torch; 153 MiB measured
LOADER_BYTES = 150 * 2**20
_PREFETCHED = 2  # batches that torch asks of each loading process ahead of time
_STEP_BYTES = 48  # a step's loss, its seconds and its wait, kept until the end


@dataclass(frozen=True)
class Part:
    """Memory that one rank needs: the fields' values, its use, and how to need less."""

    values: str
    use: str
    bytes: int
    cure: str


def require_fit(config: RunConfig, launch: Launch, env: Mapping[str, str]) -> None:
    """Raise UsageError for what would fail later: no torch, too little memory, no interface."""
    if importlib.util.find_spec("torch") is None:
        cure = "run make setup, then . .venv/bin/activate"
        if checkout() is None:
            cure = "pip install torch torchvision, or run make setup, which builds all backends"
        raise UsageError(f"{sys.executable} has no torch, which a run needs; {cure}")
    require_memory(parts(config), launch.local_size, machine_bytes())
    if config.transport in ("gloo", "nccl"):  # over NCCL both frameworks meet through Gloo
        require_interface(env, [name for _, name in socket.if_nameindex()])


def require_training_fit(config: RunConfig, launch: Launch, parameter_bytes: int) -> None:
    """Raise UsageError for too little memory, once the model's trained bytes are known."""
    needed = [*parts(config), *training_parts(config, parameter_bytes)]
    require_memory(needed, launch.local_size, machine_bytes())


def parts(config: RunConfig) -> list[Part]:
    """The least memory of a rank, without activations and weights, which depend on the model."""
    number_bytes = 8 if config.precision == "float64" else 4
    sample = 3 * config.image_size**2 * number_bytes + 8  # its label
    batch = config.samples_per_rank * sample + 8 * config.samples_per_step  # the step's order
    image = f"image_size={config.image_size}"
    steps = f"windows={config.windows} of steps_per_window={config.steps_per_window}"
    steps += f", warmup_steps={config.warmup_steps}"
    many = f"batch_per_rank={config.batch_per_rank} at {image}"
    if config.batch_per_rank is None:
        many = f"global_batch={config.global_batch} at {image}"
    use, batches = "its batches take", 1 + _PREFETCHED * config.num_workers
    if config.preprocessing == "outside":
        many, use, batches = f"{steps}, {many}", "all batches, made beforehand take", config.steps
    loaders, notes = config.num_workers * LOADER_BYTES, config.steps * _STEP_BYTES
    fewer_loaders = "use fewer, about as many as there are cores for each rank"
    needs = [
        Part(many, use, batch * batches, "use a smaller batch or image"),
        Part(steps, "the notes of every step take", notes, "use fewer or shorter windows"),
        Part(
            f"num_workers={config.num_workers}",
            "its loading processes take",
            loaders,
            fewer_loaders,
        ),
    ]
    if config.dataset == "digits":
        enlarged = DIGITS_SAMPLES * config.image_size**2 * number_bytes
        needs.append(Part(image, "the enlarged digits take", enlarged, "use smaller images"))
    if config.fusion_mib is not None and config.device == "cpu":
        fusion, setting = int(config.fusion_mib * 2**20), f"fusion_mib={config.fusion_mib:g}"
        needs.append(Part(setting, "the fusion buffer takes", fusion, "use a smaller one"))
    return needs


def training_parts(config: RunConfig, parameter_bytes: int) -> list[Part]:
    """Memory for parameters, gradients and momentum; none where they are on a GPU."""
    if config.device == "cuda" or config.loader_only:
        return []
    use, copies = "parameters and gradients take", 2
    if config.momentum:
        use, copies = "parameters, gradients and momentum take", 3
    cure = "use a smaller model, or fewer ranks on each node"
    return [Part(f"model={config.model}", use, copies * parameter_bytes, cure)]


def require_memory(needed: Sequence[Part], local_size: int, available_bytes: int) -> None:
    """Raise UsageError, naming the largest part, if a node's ranks need more than it has."""
    if sum(part.bytes for part in needed) * local_size <= available_bytes:
        return
    most = max(needed, key=lambda part: part.bytes)
    ranks = "" if local_size == 1 else f" on each of {local_size} ranks"
    raise UsageError(
        f"{most.values}: {most.use} at least {_gib(most.bytes)}{ranks}, and this machine has "
        f"{_gib(available_bytes)}; {most.cure}"
    )


def _gib(count: int) -> str:
    """Rounded up with integers, as the number may be too large for a float."""
    tenths = -(-count * 10 // 2**30)
    return f"{tenths // 10:,}.{tenths % 10} GiB"


def machine_bytes() -> int:
    """Memory of this machine, or what a container, job or control group leaves of it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *_group_limits(_read(Path("/proc/self/cgroup")), Path("/sys/fs/cgroup"))])


def free_bytes() -> int | None:
    """Memory that new processes may take without swapping; None where the kernel does not tell."""
    available = re.search(r"^MemAvailable: +(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    return None if available is None else min(1024 * int(available[1]), machine_bytes())


def _group_limits(groups: str, root: Path) -> list[int]:
    """Limits of the control groups in /proc/self/cgroup and of all groups above, v1 and v2."""
    limits: list[int] = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base, file = root / "memory", "memory.limit_in_bytes"
        if not controllers:
            base, file = root, "memory.max"
        group = base / path.lstrip("/")
        folders = [folder for folder in (group, *group.parents) if folder.is_relative_to(base)]
        texts = [_read(folder / file).strip() for folder in folders]
        limits += [int(text) for text in texts if text.isdecimal()]
    return limits


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def require_interface(env: Mapping[str, str], existing: Sequence[str]) -> None:
    """Raise UsageError where Gloo is told of an interface that this host lacks, for it would abort,
    or where two frameworks would be compared over two wires.
    """
    interfaces = {name: env[name] for name in interface_variables() if env.get(name)}
    for name, value in interfaces.items():
        if "," in value:  # torch's Gloo would use all of them, Horovod's takes no list
            several = (
                f"{name}={value!r} names several interfaces, and not every framework takes them"
            )
            raise UsageError(f"{several}; name one")
        if value not in existing:
            cure = f"unset it, or name one of {', '.join(existing)}"
            raise UsageError(f"{name}={value!r} names no interface of this host; {cure}")
    if len({*interfaces.values()}) > 1:
        settings = " and ".join(f"{name}={value!r}" for name, value in interfaces.items())
        raise UsageError(f"{settings} are two wires, which no comparison spans; unset one of them")
