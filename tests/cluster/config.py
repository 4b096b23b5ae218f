"""What the cluster is made of, as values and texts: names, addresses, slurm.conf, gres.conf, hosts."""

from __future__ import annotations

from pathlib import Path

NODES = ("n1", "n2", "n3", "n4")
LOGIN = "login"
CPUS = 4  # of each node, whatever the machine has: Slurm is told to believe it
GPUS = 4  # of each node, in name only
LOST_S = 12  # a node that has been silent for so long is down

# All of it lies on a tmpfs that only the sandbox sees, and ends with it.
HOME = Path("/run/cluster")
SLURM_CONF = HOME / "slurm.conf"
LOGS = HOME / "log"
SHARED = HOME / "shared"  # a folder that all nodes see, as /home is on a cluster; their /tmp is their own
KEPT = HOME / "kept"  # where folders that lie below /tmp are shared from
LOGIN_NET = HOME / "login.net"  # the login node's network namespace, by name
BRIDGE = "br0"

_NETWORK = "10.77.0"


def address(host: str) -> str:
    """The host's address on the bridge."""
    return f"{_NETWORK}.{254 if host == LOGIN else 1 + NODES.index(host)}"


def hosts() -> str:
    """/etc/hosts of every host of the cluster."""
    return "127.0.0.1 localhost\n" + "".join(f"{address(host)} {host}\n" for host in (LOGIN, *NODES))


def gres_conf() -> str:
    """Devices that stand for GPUs, so that requests for GPUs can be tried."""
    return f"NodeName=n[1-{len(NODES)}] Name=gpu File={HOME}/gpu[0-{GPUS - 1}]\n"


def slurm_conf() -> str:
    """One cluster, two partitions (jobs in `urgent` push those in `main` aside), no accounting."""
    nodes = f"n[1-{len(NODES)}]"
    return f"""\
ClusterName=test
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
SelectTypeParameters=CR_CPU
MpiDefault=none
TmpFS=/tmp
GresTypes=gpu
JobCompType=jobcomp/filetxt
JobCompLoc={LOGS}/jobs.txt
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout={LOST_S}
KillWait=5
NodeName={nodes} CPUS={CPUS} Gres=gpu:{GPUS} State=UNKNOWN
PartitionName=main Nodes={nodes} Default=YES PriorityTier=1
PartitionName=urgent Nodes={nodes} PriorityTier=2
"""
