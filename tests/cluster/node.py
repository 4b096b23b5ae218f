"""One node: `python -m tests.cluster.node NAME` is its first process; the functions start, lose and
slow it from outside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import config, namespace

# the shell's own number stays that of unshare, which it becomes; setsid leaves it to the sandbox's
# first process
_NOTE_AND_BECOME = 'echo $$ >"$0"; exec "$@"'


def start(name: str) -> None:
    """Switch the node on; it reports to Slurm by itself."""
    command = namespace.apart([sys.executable, "-m", "tests.cluster.node", name])
    with (config.LOGS / f"{name}.out").open("a") as out:
        subprocess.run(
            ["setsid", "--fork", "sh", "-c", _NOTE_AND_BECOME, str(_pid_file(name)), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=namespace.ROOT,
            check=True,
        )


def is_on(name: str) -> bool:
    """Check whether the node is switched on."""
    return Path(f"/proc/{_pid(name)}").exists()


def lose(name: str) -> None:
    """Pull the cable, then the plug: nobody is told, and no process of the node is left."""
    namespace.call("ip", "link", "delete", namespace.link(name))
    os.kill(_pid(name), signal.SIGKILL)


def shape(name: str, rate: str | None) -> None:
    """Limit the node's link in both directions to `rate` as tc writes it ('100mbit'), or lift the
    limit.
    """
    limit = (
        ["replace", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
        if rate
        else ["delete", "root"]
    )
    for prefix, device in (((), namespace.link(name)), (inside(name), "eth0")):
        namespace.call(*prefix, "tc", "qdisc", limit[0], "dev", device, *limit[1:])


def inside(name: str) -> list[str]:
    """Return words that, put before a command, run it on the node without Slurm."""
    pid = _pid(name)
    # the note is of the process that made the namespaces, and only its children are in the new
    # process namespace
    spaces = ["--mount", "--net", "--uts", "--ipc", f"--pid=/proc/{pid}/ns/pid_for_children"]
    return ["nsenter", f"--target={pid}", *spaces, "--"]


def _pid_file(name: str) -> Path:
    return config.HOME / "nodes" / f"{name}.pid"


def _pid(name: str) -> int:
    return int(_pid_file(name).read_text())


def reap_until(pid: int) -> int:
    """Wait for `pid`, and meanwhile for every orphan, as the first process must; the exit status of
    `pid`.
    """
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def main(arguments: Sequence[str]) -> int:
    (name,) = arguments
    namespace.make_node(name)
    slurmd = os.spawnvp(
        os.P_NOWAIT, "slurmd", ["slurmd", "-D", "-N", name, "-f", str(config.SLURM_CONF)]
    )
    return reap_until(slurmd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
