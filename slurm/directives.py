"""Options and variables for a scheduler and a launcher, as they follow from the site."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bench.backends.catalogue import interface_variables
from bench.config import UsageError
from bench.study.definition import Study
from slurm.fit import Job, minutes
from slurm.site import Site
from slurm.tables import WORD

REPORT = "report"  # id of the job that writes the report; those that measure are as n004-launch00
_REPORT_MINUTES = 10


@dataclass(frozen=True)
class Request:
    """A site, and what the command line says for its jobs; `minutes` of None: as a job needs."""

    site: Site
    account: str = ""
    minutes: int | None = None
    reservation: str = ""

    def __post_init__(self) -> None:
        for option in ("account", "reservation"):
            if not re.fullmatch(WORD, value := getattr(self, option)):
                rule = "would not reach sbatch as it is; write it without blanks, quotes and so on"
                raise UsageError(f"--{option} {value!r} {rule}")

    @property
    def lacks_account(self) -> str:
        """What is wrong where the site wants an account and none is named; '' if nothing is."""
        access = self.site.access
        if not access.account_required or self.account or access.account:
            return ""
        cure = "give --account NAME, or write access.account"
        return f"site {self.site.name!r} charges every job to an account; {cure}"


def job_name(study: Study, job_id: str) -> str:
    """Name a job in the queue so that the jobs of a study can be told apart."""
    return f"{study.name}-{job_id}"


def directives(study: Study, request: Request, job: Job) -> list[str]:
    """List sbatch's options. Raises UsageError without an account or if the site forbids any."""
    site = request.site
    if site.launch == "ibrun":  # it takes the ranks from the job, and binds them itself
        ranks: dict[str, object] = {"ntasks": job.nodes * site.ranks_per_node}
    else:
        ranks = {"ntasks-per-node": site.ranks_per_node, "cpus-per-task": site.cpu.per_rank}
    hours, rest = divmod(minutes(job, study, site, request.minutes), 60)
    resources = {
        **ranks,
        **_gpus(site),
        "time": f"{hours:02d}:{rest:02d}:00",
        "exclusive": site.policy.exclusive,
        # B: to the batch shell alone: ranks and the processes that load their data would die of it
        "signal": f"B:USR1@{site.policy.signal_lead_s}",
    }
    ends = {"requeue" if site.policy.requeue else "no-requeue": True}
    return _options(job_name(study, job.id), request, job.nodes, resources, ends)


def report_directives(study: Study, request: Request) -> list[str]:
    """List options of sbatch for the job that writes the report: one process, minutes, no GPU."""
    site = request.site
    # a rank's memory comes with its CPUs
    cpus = {} if site.launch == "ibrun" else {"cpus-per-task": site.cpu.per_rank}
    resources = {"ntasks": 1, **cpus, "time": f"00:{report_minutes(site):02d}:00"}
    return _options(job_name(study, REPORT), request, 1, resources, {"no-requeue": True})


def report_minutes(site: Site) -> int:
    """Choose the minutes that the report's job asks for."""
    return min(_REPORT_MINUTES, site.limits.max_minutes or _REPORT_MINUTES)


def _words(options: Mapping[str, object]) -> list[str]:
    """Write options as on a command line; True: an option without a value, False or '': none."""
    written = ((name, value) for name, value in options.items() if value)
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in written]


def _options(
    name: str,
    request: Request,
    nodes: int,
    resources: Mapping[str, object],
    ends: Mapping[str, object],
) -> list[str]:
    site, first = request.site, {"job-name": name, **_access(request), "nodes": nodes}
    output = {"open-mode": "append", "output": "%x-%j.out"}
    lines = [*_words({**first, **resources, **output, **ends}), *site.access.extra]
    for line in lines:
        if (option := line.removeprefix("--").partition("=")[0]) in site.directives.forbidden:
            rule = (
                f"site {site.name!r} forbids --{option} (directives.forbidden), and its file asks"
            )
            cure = "take out the key that makes it, under access, gpu or policy"
            raise UsageError(f"{rule} for {line}; {cure}")
    return lines


def _access(request: Request) -> dict[str, object]:
    site, access = request.site, request.site.access
    if why := request.lacks_account:
        raise UsageError(why)
    names = ("account", "partition", "qos", "constraint", "reservation", "clusters")
    # the command line's goes before the site's
    named = {name: getattr(request, name, "") or getattr(access, name) for name in names}
    return {**named, "hint": site.cpu.hint}


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
