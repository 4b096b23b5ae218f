"""Options and variables for a scheduler and a launcher, as they follow from the site."""

from __future__ import annotations

from collections.abc import Mapping

from bench.backends.catalogue import interface_variables
from bench.study.definition import Study
from slurm.fit import Job, minutes
from slurm.site import Site

REPORT = "report"  # id of the job that writes the report; those that measure are as n004-launch00
_REPORT_MINUTES = 10


def job_name(study: Study, job_id: str) -> str:
    """Name a job in the queue so that the jobs of a study can be told apart."""
    return f"{study.name}-{job_id}"


def directives(study: Study, site: Site, job: Job, wanted: int | None = None) -> list[str]:
    """List sbatch's options; `wanted`: minutes to ask for, else as many as the job needs."""
    if site.launch == "ibrun":  # it takes the ranks from the job, and binds them itself
        ranks: dict[str, object] = {"ntasks": job.nodes * site.ranks_per_node}
    else:
        ranks = {"ntasks-per-node": site.ranks_per_node, "cpus-per-task": site.cpu.per_rank}
    hours, rest = divmod(minutes(job, study, site, wanted), 60)
    resources = {
        **ranks,
        **_gpus(site),
        "time": f"{hours:02d}:{rest:02d}:00",
        "exclusive": site.policy.exclusive,
        # B: to the batch shell alone: ranks and the processes that load their data would die of it
        "signal": f"B:USR1@{site.policy.signal_lead_s}",
    }
    return _options(job_name(study, job.id), site, job.nodes, resources, site.policy.requeue)


def report_directives(study: Study, site: Site) -> list[str]:
    """List options of sbatch for the job that writes the report: one process, minutes, no GPU."""
    # a rank's memory comes with its CPUs
    cpus = {} if site.launch == "ibrun" else {"cpus-per-task": site.cpu.per_rank}
    most = min(_REPORT_MINUTES, site.limits.max_minutes or _REPORT_MINUTES)
    resources = {"ntasks": 1, **cpus, "time": f"00:{most:02d}:00"}
    return _options(job_name(study, REPORT), site, 1, resources, requeue=False)


def _words(options: Mapping[str, object]) -> list[str]:
    """Write options as on a command line; True: an option without a value, False or '': none."""
    written = ((name, value) for name, value in options.items() if value)
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in written]


def _options(
    name: str, site: Site, nodes: int, resources: Mapping[str, object], requeue: bool
) -> list[str]:
    place = {**site.access.model_dump(exclude={"extra"}), "hint": site.cpu.hint, "nodes": nodes}
    output = {"open-mode": "append", "output": "%x-%j.out"}
    end = {"requeue": requeue, "no-requeue": not requeue}
    options = {"job-name": name, **place, **resources, **output, **end}
    return [*_words(options), *site.access.extra]


def _gpus(site: Site) -> dict[str, object]:
    gpus = site.node.gpus
    kind = f"{site.gpu.type}:" if site.gpu.type else ""
    values = {"gpus-per-node": f"{kind}{gpus}", "gres": f"gpu:{kind}{gpus}"}
    values["gpus-per-task"] = f"{kind}1"
    option = site.gpu.request
    return {option: values[option]} if gpus and option != "none" else {}


def step_args(site: Site) -> list[str]:
    """List the arguments of srun or ibrun that are the same for every step, whatever its ranks."""
    if site.launch != "srun":
        return list(site.launch_args)
    bound = {"gpu-bind": site.gpu.bind, "cpu-bind": site.cpu.bind, "mpi": site.mpi}
    return [*_words({"kill-on-bad-exit": 1, **_gpus(site), **bound}), *site.launch_args]


def exports(site: Site) -> dict[str, str]:
    """Choose variables for every run: one wire for both frameworks; what the site says wins."""
    variables = dict[str, str]()
    if site.mpi.startswith("pmix"):
        # Slurm's default, a tree, lets ranks out of a fence that others have not reached (22.05): a
        # first message then meets a rank still inside MPI_Init, and Open MPI 5 crashes there
        variables["SLURM_PMIX_FENCE"] = "ring"
    if names := site.network.ifname:
        first = names.partition(",")[0]
        variables |= {"NCCL_SOCKET_IFNAME": names, **dict.fromkeys(interface_variables(), first)}
    return {**variables, **site.env}


def reaching_all_hosts(site: Site) -> Site:
    """Return the site with mpirun told of its hostfile, and of variables that all hosts need."""
    if not site.hostfile:
        return site
    env = exports(site)
    named = [word for name in env if not name.startswith("OMPI_") for word in ("-x", name)]
    arguments = (*site.mpirun_args, "--hostfile", site.hostfile, *named)
    return site.model_copy(update={"mpirun_args": arguments, "env": env})
