"""python -m tests.cluster [-- COMMAND...]: start the cluster, run a shell or COMMAND on its login
node, stop the cluster.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from tests.cluster import config, daemons, namespace
from tests.cluster.node import reap_until

INPUT_ERROR = 2
_INSIDE = "--inside"
_HELP = f"""\
usage: python -m tests.cluster [--check | -- COMMAND...]

Starts a real Slurm with the nodes {", ".join(config.NODES)} on this machine, in its own namespaces,
and runs COMMAND on its login node: a shell, if none is given. When that ends, the cluster is gone.
The exit status is the command's.
Nodes share all files but /tmp; the network ends at the login node.
--check only looks whether this machine has what that needs.
Slow a node's link: python -m tests.cluster.link n2 100mbit (or: off)
"""
_WELCOME = f"""\
A Slurm of {len(config.NODES)} nodes is up; leave this shell to stop it. For example:
  sinfo
  srun -N2 -n2 --mpi=pmix python -m bench doctor --backend ddp --transport gloo --world-size 2 \\
      --log-path {config.SHARED}/doctor.jsonl
  srun -N2 -n3 --mpi=none python -m bench --backend horovod --transport gloo --world-size 3 \\
      --model resnet18 --dataset digits --batch-per-rank 8 --log-path {config.SHARED}/hvd.jsonl
{config.SHARED} is seen by all nodes and ends with the cluster, as do logs in {config.LOGS}.\
"""


def main(arguments: Sequence[str]) -> int:
    """Exit status of the command; 2 where the cluster cannot be started here."""
    if arguments[:1] == [_INSIDE]:
        return _run_inside(arguments[1:])
    check = list(arguments) == ["--check"]
    if arguments and arguments[0] != "--" and not check:
        print(_HELP, end="")
        return 0 if arguments[0] in ("-h", "--help") else INPUT_ERROR
    if (reason := daemons.missing()) is not None:
        print(f"error: {reason}", file=sys.stderr)
        return INPUT_ERROR
    if check:
        return 0
    return _run_apart([sys.executable, "-m", "tests.cluster", _INSIDE, *arguments[1:]])


def _run_apart(command: Sequence[str]) -> int:
    """Run the sandbox to its end; a signal to this process ends all of it, and so does this
    process's own end.
    """
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *namespace.apart(command)], cwd=namespace.ROOT
    )

    def end(number: int, _frame: FrameType | None) -> None:
        # unshare holds back any weaker signal; with it goes the sandbox's first process, and so all
        process.kill()

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the command's
    code = process.wait()
    return 128 - code if code < 0 else code


def _run_inside(command: Sequence[str]) -> int:
    signal.signal(signal.SIGINT, lambda *_: None)
    os.environ["PATH"] = daemons.PATH
    # all nodes share the machine's cores: an Open MPI that polls would take them from the ranks
    # that compute
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    # as in our job scripts, which say why (slurm/directives.py)
    os.environ.setdefault("SLURM_PMIX_FENCE", "ring")
    try:
        namespace.make_login()
        daemons.start()
    except (RuntimeError, OSError) as error:
        print(f"error: the cluster does not start: {error}", file=sys.stderr)
        return INPUT_ERROR
    if not command:
        print(_WELCOME, flush=True)
        os.environ["PS1"] = r"[test cluster] \w# "
        command = ["bash", "--norc", "-i"]
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(
        config.SHARED
    )  # what tests write must be seen by all nodes
    process = subprocess.Popen(command)
    process.returncode = code = reap_until(process.pid)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
