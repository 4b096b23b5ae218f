"""Slurm's daemons in the sandbox: munge, the controller, and one slurmd per node, up when all nodes
are idle.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.cluster import config, namespace, node

TOOLS = {
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "srun": "slurm-wlm",
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}
# where srun's plug-in for PMIx looks for its library under Debian, and where other systems have it
_PMIX = ("lib/*/pmix*/lib", "lib*", "lib/*", "local/lib*")
_UP_S = 60.0
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # a user's PATH may lack the daemons' folder


def missing() -> str | None:
    """Say why the cluster cannot be started here, with the cure; return None if it can."""
    if os.geteuid() != 0:
        return "the test cluster needs root (for its namespaces); use sudo"
    absent = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    packages = {TOOLS[tool] for tool in absent}
    if not any(list(Path("/usr").glob(f"{folder}/libpmix.so")) for folder in _PMIX):
        absent.append("libpmix.so")
        packages.add("libpmix-dev")
    if absent:
        return (
            f"{', '.join(absent)} not found; apt-get install --no-install-recommends "
            f"{' '.join(sorted(packages))}"
        )
    tried = subprocess.run(
        namespace.apart(["true"]), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if tried.returncode:
        said = tried.stderr.strip() or f"unshare ended with {tried.returncode}"
        return (
            f"this machine allows its root no namespaces of its own ({said}); use one that is "
            f"not itself a container, or a VM"
        )
    return None


def start() -> None:
    """Start all daemons and return when every node is idle; raises RuntimeError with the logs' ends
    where one is not.
    """
    os.environ["SLURM_CONF"] = str(config.SLURM_CONF)
    _start_munge()
    _spawn("slurmctld", "-D", "-i", "-f", str(config.SLURM_CONF))
    for name in config.NODES:
        node.start(name)
    wait_idle(config.NODES, _UP_S)


def _spawn(program: str, *arguments: str, user: str | None = None) -> None:
    with (config.LOGS / f"{program}.out").open("w") as out:
        who: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        process = subprocess.Popen([program, *arguments], **streams, **who)
    process.returncode = 0  # the sandbox's first process reaps it, whoever that is


def _start_munge() -> None:
    # clients look in the second unless told otherwise
    private, public = config.HOME / "munge", Path("/run/munge")
    for folder, mode in ((private, 0o700), (public, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
        shutil.chown(folder, "munge", "munge")
    key = private / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    shutil.chown(key, "munge", "munge")
    places = {
        "key-file": key,
        "log-file": private / "log",
        "pid-file": private / "pid",
        "seed-file": private / "seed",
    }
    words = (f"--{name}={path}" for name, path in places.items())
    _spawn("munged", "--foreground", *words, user="munge")
    deadline = time.monotonic() + _UP_S
    while not (public / "munge.socket.2").exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"munged does not start\n{logs()}")
        time.sleep(0.05)


def states() -> dict[str, str]:
    """Map each node to its state as sinfo words it: 'idle', 'alloc', 'down*', ..."""
    done = subprocess.run(
        ["sinfo", "-h", "-N", "-p", "main", "-o", "%N %t"], capture_output=True, text=True
    )
    return dict(line.split() for line in done.stdout.splitlines())


def wait_idle(nodes: tuple[str, ...], limit_s: float) -> None:
    """Return once all `nodes` are idle; raises RuntimeError after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while any((now := states()).get(name) != "idle" for name in nodes):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all nodes are idle after {limit_s:g} s: {now}\n{logs()}")
        time.sleep(0.2)


def logs(lines: int = 15) -> str:
    """Read the last lines of every log."""
    parts = []
    # the daemons say the same in files of their own, with the time
    for path in sorted(config.LOGS.glob("*.out")):
        text = path.read_text(errors="replace").splitlines()[-lines:]
        parts += [f"== {path.name}", *text] if text else []
    return "\n".join(parts)
