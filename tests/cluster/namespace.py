"""The sandbox: namespaces of their own for network, mounts, names and processes, so that the
machine notices nothing.

The kernel ends every process of a process namespace with its first one: whatever happens, nothing
is left behind.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import config

ROOT = Path(__file__).parents[2]
_SPACES = ("--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc")
_UNSHARE = ("unshare", *_SPACES, "--fork", "--kill-child", "--")


def apart(command: Sequence[str]) -> list[str]:
    """Make the command that runs `command` as the first process of new namespaces."""
    return [*_UNSHARE, *command]


def call(*words: str) -> None:
    """Run a system command; what it says about its failure is in the exception."""
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip() or done.returncode}"
        )


def make_login() -> None:
    """Make the login node's name, files and bridge, inside new namespaces."""
    call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    config.HOME.mkdir()
    for name in (config.LOGS, config.SHARED, config.KEPT, "state", "nodes"):
        (config.HOME / name).mkdir()
    config.SLURM_CONF.write_text(config.slurm_conf(time.time()))
    (config.HOME / "gres.conf").write_text(config.gres_conf())
    _bind_text(config.hosts(), Path("/etc/hosts"))
    services = ("hosts", "passwd", "group", "shadow")  # no name server to ask
    _bind_text("".join(f"{name}: files\n" for name in services), Path("/etc/nsswitch.conf"))
    config.LOGIN_NET.touch()
    call("mount", "--bind", "/proc/self/ns/net", str(config.LOGIN_NET))
    call("hostname", config.LOGIN)
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", config.BRIDGE, "type", "bridge")
    call("ip", "addr", "add", f"{config.address(config.LOGIN)}/24", "dev", config.BRIDGE)
    call("ip", "link", "set", config.BRIDGE, "up")
    for number, path in enumerate(below_tmp()):
        (config.KEPT / str(number)).mkdir()
        call("mount", "--bind", str(path), str(config.KEPT / str(number)))


def make_node(name: str) -> None:
    """Make a node's name, link to the bridge, /tmp and shared memory, inside new namespaces."""
    call("hostname", name)
    call("ip", "link", "set", "lo", "up")
    card = ("eth0", "address", config.hardware_address(name))
    peer = ("type", "veth", "peer", "name", link(name), "netns", str(config.LOGIN_NET))
    call("ip", "link", "add", *card, *peer)
    call("ip", "addr", "add", f"{config.address(name)}/24", "dev", "eth0")
    call("ip", "link", "set", "eth0", "up")
    of_login = ("nsenter", f"--net={config.LOGIN_NET}", "ip", "link", "set")
    call(*of_login, link(name), "master", config.BRIDGE, "up")
    call("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    call("mount", "-t", "tmpfs", "tmpfs", "/tmp")
    for number, path in enumerate(below_tmp()):
        path.mkdir(parents=True, exist_ok=True)
        call("mount", "--bind", str(config.KEPT / str(number)), str(path))


def link(name: str) -> str:
    """Name the bridge's end of a node's cable."""
    return f"to-{name}"


def _bind_text(text: str, path: Path) -> None:
    copy = config.HOME / path.name
    copy.write_text(text)
    call("mount", "--bind", str(copy), str(path))


def below_tmp() -> list[Path]:
    """List this checkout and its environment, as far as a node's own /tmp would hide them: nodes
    are given them back.
    """
    paths = {ROOT.resolve(), Path(sys.prefix).resolve()}
    return sorted(path for path in paths if Path("/tmp") in path.parents)
