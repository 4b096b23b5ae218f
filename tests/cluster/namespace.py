"""The sandbox: namespaces of their own for network, mounts, names and processes, so that the
machine notices nothing.

The kernel ends every process of a process namespace with its first one: whatever happens, nothing
is left behind.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import config

ROOT = Path(__file__).parents[2]
_UNSHARE = (
    "unshare",
    "--net",
    "--mount",
    "--uts",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--",
)


def apart(command: Sequence[str]) -> list[str]:
    """`command` as the first process of new namespaces."""
    return [*_UNSHARE, *command]


def call(*words: str) -> None:
    """Run a system command; what it says about its failure is in the exception."""
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip() or done.returncode}"
        )


def make_login() -> None:
    """Inside new namespaces: the login node's name, files and bridge."""
    call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for folder in (
        config.HOME,
        config.LOGS,
        config.SHARED,
        config.KEPT,
        config.HOME / "state",
        config.HOME / "nodes",
    ):
        folder.mkdir()
    config.SLURM_CONF.write_text(config.slurm_conf(time.time()))
    (config.HOME / "gres.conf").write_text(config.gres_conf())
    for number in range(config.GPUS):
        os.mknod(
            config.HOME / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3)
        )  # as /dev/null
    _bind_text(config.hosts(), Path("/etc/hosts"))
    _bind_text(
        "hosts: files\npasswd: files\ngroup: files\nshadow: files\n", Path("/etc/nsswitch.conf")
    )  # no name server to ask
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
    """Inside new namespaces: a node's name, link to the bridge, /tmp and shared memory."""
    call("hostname", name)
    call("ip", "link", "set", "lo", "up")
    card = ("eth0", "address", config.hardware_address(name))
    call(
        "ip",
        "link",
        "add",
        *card,
        "type",
        "veth",
        "peer",
        "name",
        link(name),
        "netns",
        str(config.LOGIN_NET),
    )
    call("ip", "addr", "add", f"{config.address(name)}/24", "dev", "eth0")
    call("ip", "link", "set", "eth0", "up")
    call(
        "nsenter",
        f"--net={config.LOGIN_NET}",
        "ip",
        "link",
        "set",
        link(name),
        "master",
        config.BRIDGE,
        "up",
    )
    call("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    call("mount", "-t", "tmpfs", "tmpfs", "/tmp")
    for number, path in enumerate(below_tmp()):
        path.mkdir(parents=True, exist_ok=True)
        call("mount", "--bind", str(config.KEPT / str(number)), str(path))


def link(name: str) -> str:
    """The bridge's end of a node's cable."""
    return f"to-{name}"


def _bind_text(text: str, path: Path) -> None:
    copy = config.HOME / path.name
    copy.write_text(text)
    call("mount", "--bind", str(copy), str(path))


def below_tmp() -> list[Path]:
    """This checkout and its environment, as far as a node's own /tmp would hide them: nodes are
    given them back.
    """
    return [
        path
        for path in dict.fromkeys((ROOT.resolve(), Path(sys.prefix).resolve()))
        if Path("/tmp") in path.parents
    ]
