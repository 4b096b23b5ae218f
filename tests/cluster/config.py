"""What the cluster is made of, as values and texts: names, addresses, slurm.conf, gres.conf,
hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NODES = ("n1", "n2", "n3", "n4")
LOGIN = "login"
CPUS = 4  # of each node, whatever the machine has: Slurm is told to believe it
MEMORY_MB = 64000  # of each node, in name only: a job that asks for no less is never held to it
LOST_S = 12  # a node that has been silent for so long is down

# All of it lies on a tmpfs that only the sandbox sees, and ends with it.
HOME = Path("/run/cluster")
SLURM_CONF = HOME / "slurm.conf"
LOGS = HOME / "log"
SHARED = (
    HOME / "shared"
)  # a folder that all nodes see, as /home is on a cluster; their /tmp is their own
KEPT = HOME / "kept"  # where folders that lie below /tmp are shared from
LOGIN_NET = HOME / "login.net"  # the login node's network namespace, by name
BRIDGE = "br0"

_NETWORK = "10.77.0"
_FIRST_DAY = 1767225600  # 2026-01-01; Slurm's numbers last for twenty years from then


@dataclass(frozen=True)
class Elsewhere:
    """Nodes as another cluster has them, which never run: sbatch --test-only judges by them."""

    partition: str
    cpus: int
    gpus: int = 0
    features: str = ""
    nodes: int = 16

    @property
    def names(self) -> str:
        return f"{self.partition}[1-{self.nodes}]"


# site -> what its jobs find there; a job that names no partition there is sent to this one
ELSEWHERE = {
    "cardinal": Elsewhere("gpu", 96, 4),
    "cardinal-mvapich": Elsewhere("gpu", 96, 4),
    "generic": Elsewhere("gpu", 96, 4),
    "lumi-g": Elsewhere("standard-g", 64, 8),
    "perlmutter": Elsewhere("gpu-nodes", 128, 4, "gpu"),
    "vista": Elsewhere("gh", 72),
}


def address(host: str) -> str:
    """Return the host's address on the bridge."""
    return f"{_NETWORK}.{254 if host == LOGIN else 1 + NODES.index(host)}"


def hardware_address(host: str) -> str:
    """Make a host's network card address: a returning node has the one that its peers remember."""
    return f"02:00:00:00:00:{1 + NODES.index(host):02x}"


def hosts() -> str:
    """Return the text of /etc/hosts of every host of the cluster."""
    return "127.0.0.1 localhost\n" + "".join(
        f"{address(host)} {host}\n" for host in (LOGIN, *NODES)
    )


def gres_conf() -> str:
    """List the GPUs of other clusters' nodes, in number only."""
    having = [other for other in _kinds() if other.gpus]
    return "".join(f"NodeName={other.names} Name=gpu Count={other.gpus}\n" for other in having)


def _kinds() -> list[Elsewhere]:
    return sorted(set(ELSEWHERE.values()), key=lambda other: other.partition)


def _elsewhere() -> str:
    """Describe nodes that are switched off until somebody needs them, and would then never come."""
    lines = []
    for other in _kinds():
        has = f"CPUs={other.cpus} RealMemory={other.cpus * MEMORY_MB // CPUS}"
        has += f" Gres=gpu:{other.gpus}" if other.gpus else ""
        has += f" Feature={other.features}" if other.features else ""
        lines += [
            f"NodeName={other.names} {has} State=CLOUD",
            f"PartitionName={other.partition} Nodes={other.names} Hidden=YES",
        ]
    return "\n".join(lines)


def slurm_conf(now: float) -> str:
    """Describe one cluster without accounting; `now` is in seconds since 1970.

    Job numbers go on from one cluster to the next, so that a study's folder can outlive the
    cluster.
    """
    nodes = f"n[1-{len(NODES)}]"
    return f"""\
ClusterName=test
FirstJobId={(int(now) - _FIRST_DAY) // 10}
SlurmctldHost={LOGIN}({address(LOGIN)})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={HOME}/state
SlurmdSpoolDir={HOME}/spool.%n
SlurmctldPidFile={HOME}/slurmctld.pid
SlurmdPidFile={HOME}/slurmd.%n.pid
SlurmctldLogFile={LOGS}/slurmctld.log
SlurmdLogFile={LOGS}/slurmd.%n.log
# without systemd: Slurm finds a job's processes through /proc and binds none of them
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# more cores than the machine has
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU={MEMORY_MB // CPUS}
MpiDefault=none
TmpFS=/tmp
GresTypes=gpu
JobCompType=jobcomp/filetxt
JobCompLoc={LOGS}/jobs.txt
ReturnToService=2
SlurmdTimeout={LOST_S}
KillWait=5
NodeName={nodes} CPUS={CPUS} RealMemory={MEMORY_MB} State=UNKNOWN
PartitionName=main Nodes={nodes} Default=YES
# the nodes of other clusters
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=86400
SuspendExcNodes={nodes}
{_elsewhere()}
"""
