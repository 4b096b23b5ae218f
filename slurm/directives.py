"""What is asked of a scheduler and a launcher: options and variables that follow from the site,
each said once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.backends.catalogue import interface_variables
from bench.config import UsageError
from bench.study.definition import Study
from slurm.fit import Job, minutes
from slurm.site import Site
from slurm.tables import WORD

REPORT = "report"  # id of the job that writes the report; those that measure are as n004-b00
_REPORT_MINUTES = 10


@dataclass(frozen=True)
class Request:
    """A site, and what the command line changes of it for these jobs; `minutes` of None: as much as
    a job needs.
    """

    site: Site
    account: str = ""
    minutes: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(WORD, self.account):
            raise UsageError(
                f"--account {self.account!r} would not reach sbatch as it is; write it without "
                f"blanks, quotes and the like"
            )


def directives(study: Study, request: Request, job: Job) -> list[str]:
    """Options of sbatch. Raises UsageError where the account is missing or the site forbids an
    option.
    """
    site = request.site
    options = [("job-name", job_name(study, job.id))]
    options += _access(request)
    options += [("nodes", str(job.nodes)), *_ranks(site, job)]
    hours, rest = divmod(minutes(job, study, site, request.minutes), 60)
    options += [("time", f"{hours:02d}:{rest:02d}:00")]
    options += [("exclusive", "")] if site.policy.exclusive else []
    # B: to the batch shell alone: ranks and the processes that load their data would die of it
    options += [
        ("signal", f"B:USR1@{site.policy.signal_lead_s}"),
        ("open-mode", "append"),
        ("output", "%x-%j.out"),
    ]
    options += [("requeue" if site.policy.requeue else "no-requeue", "")]
    options += [("no-kill", "")] if site.policy.no_kill else []
    return _allowed(options, site)


def report_directives(study: Study, request: Request) -> list[str]:
    """Options of sbatch for the job that writes the report: one process, minutes, no GPU. Raises
    UsageError as `directives`.
    """
    site = request.site
    options = [
        ("job-name", job_name(study, REPORT)),
        *_access(request),
        ("nodes", "1"),
        ("ntasks", "1"),
    ]
    options += (
        [] if site.launch == "ibrun" else [("cpus-per-task", str(site.cpu.per_rank))]
    )  # a rank's memory comes with them
    options += [
        ("time", f"00:{report_minutes(site):02d}:00"),
        ("open-mode", "append"),
        ("output", "%x-%j.out"),
        ("no-requeue", ""),
    ]
    return _allowed(options, site)


def report_minutes(site: Site) -> int:
    """What the report's job asks for."""
    return min(_REPORT_MINUTES, site.limits.max_minutes or _REPORT_MINUTES)


def _allowed(options: Sequence[tuple[str, str]], site: Site) -> list[str]:
    lines = [f"--{name}={value}" if value else f"--{name}" for name, value in options] + list(
        site.access.extra
    )
    for line in lines:
        if (name := line.removeprefix("--").partition("=")[0]) in site.directives.forbidden:
            raise UsageError(
                f"site {site.name!r} forbids --{name} (directives.forbidden), and its file asks "
                f"for {line}; "
                "take out the key that makes it, under access, gpu or policy"
            )
    return lines


def job_name(study: Study, job_id: str) -> str:
    """A job's name in the queue: it tells the jobs of a study apart."""
    return f"{study.name}-{job_id}"


def _access(request: Request) -> list[tuple[str, str]]:
    site, access = request.site, request.site.access
    account = request.account or access.account
    if access.account_required and not account:
        raise UsageError(
            f"site {site.name!r} charges every job to an account; give --account NAME, or write "
            f"access.account"
        )
    names = ("partition", "qos", "constraint", "reservation", "clusters")
    options = [
        ("account", account),
        *((name, getattr(access, name)) for name in names),
        ("hint", site.cpu.hint),
    ]
    return [(name, value) for name, value in options if value]


def _ranks(site: Site, job: Job) -> list[tuple[str, str]]:
    if site.launch == "ibrun":  # it takes the ranks from the job, and binds them itself
        return [("ntasks", str(job.nodes * site.ranks_per_node)), *_gpus(site)]
    return [
        ("ntasks-per-node", str(site.ranks_per_node)),
        ("cpus-per-task", str(site.cpu.per_rank)),
        *_gpus(site),
    ]


def _gpus(site: Site) -> list[tuple[str, str]]:
    values = {
        "gpus-per-node": str(site.node.gpus),
        "gres": f"gpu:{site.node.gpus}",
        "gpus-per-task": "1",
    }
    return (
        [(site.gpu.request, values[site.gpu.request])]
        if site.node.gpus and site.gpu.request != "none"
        else []
    )


def step_args(site: Site) -> list[str]:
    """Arguments of srun or ibrun that are the same for every step, whatever its ranks."""
    if site.launch != "srun":
        return list(site.launch_args)
    options = [
        *_gpus(site),
        ("gpu-bind", site.gpu.bind),
        ("cpu-bind", site.cpu.bind),
        ("mpi", site.mpi),
    ]
    return [
        "--kill-on-bad-exit=1",
        *(f"--{name}={value}" for name, value in options if value),
        *site.launch_args,
    ]


def exports(site: Site) -> dict[str, str]:
    """Variables for every run: one wire for both frameworks, then what the site says,
    which wins.
    """
    name = site.network.ifname
    wire = {"NCCL_SOCKET_IFNAME": name, **dict.fromkeys(interface_variables(), name.split(",")[0])}
    return {**(wire if name else {}), **site.env}


def own_env(site: Site) -> dict[str, list[str]]:
    """By backend the variables of its runs alone, as NAME=VALUE."""
    return {
        backend: [f"{name}={value}" for name, value in variables.items()]
        for backend, variables in site.env_per_backend.items()
        if variables
    }


def reaching_all_hosts(site: Site) -> Site:
    """The site with mpirun's arguments for a hostfile: it gives other machines no variable that it
    is not told of.
    """
    if not site.hostfile:
        return site
    env = exports(site)
    named = [word for name in env if not name.startswith("OMPI_") for word in ("-x", name)]
    return site.model_copy(
        update={"mpirun_args": (*site.mpirun_args, "--hostfile", site.hostfile, *named), "env": env}
    )
