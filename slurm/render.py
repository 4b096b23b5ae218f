"""Job scripts rendered from a study's runs, with the site's options of scheduler and launcher."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.backends.catalogue import interface_variables
from bench.study.definition import OWNED_FIELDS, Study
from bench.study.plan import PlannedRun
from slurm.fit import EARLY_S, REPORT, Job, job_name, minutes
from slurm.site import Site
from slurm.together import TurnGroup, together

if TYPE_CHECKING:
    import jinja2

Runs = Sequence[PlannedRun]
_CURE_HERE = "run 'make setup' or say where it is: PYTHON=... MPIRUN=..."
_CURE = "see [setup] of the site, or PYTHON=... sbatch THIS_FILE"

# Not repeated on a run's line: the driver derives world size from RANKS and the log from ID, and
# names the study once.
_NOT_ON_THE_LINE = {"study", "study_sha256", "world_size", "log_path"}


def render_job(study: Study, text: str, site: Site, runs: Runs, folder: Path) -> str:
    """Render a script that does `runs` in order on this machine, from the repository root.

    `text` is the content of the study's file, which the script keeps beside the logs in `folder`.
    """
    site = reaching_all_hosts(site)
    return _fill(
        "job.sh.j2",
        **_around(study, site, folder, "run", _CURE_HERE),
        **_runs(study, text, site, runs),
        directives=[],
        job=None,
        launch_args=site.mpirun_args,
    )


def render_batch(
    study: Study, text: str, site: Site, job: Job, folder: Path, wanted: int | None = None
) -> str:
    """Render a job's script of `wanted` minutes (None: estimated); `text` is the study's file."""
    config = job.runs[0].config
    # what the doctor is asked besides the cells, of which it tries those that take a mean
    doctor = (config.to_words(name) for name in ("threads", "dataset", "data_dir"))
    tried = (run for run in job.runs if run.config.transport != "none" and run.config.averages)
    return _fill(
        "job.sh.j2",
        **_around(study, site, folder, "submit", _CURE),
        **_runs(study, text, site, job.runs),
        directives=directives(study, site, job, wanted),
        job=job,
        minutes=minutes(job, study, site, wanted),
        early_s=EARLY_S,
        launch_args=step_args(site),
        preflight=shlex.join(word for words in doctor for word in words),
        cells=sorted({run.point.cell for run in tried}),
    )


def render_report(study: Study, site: Site, folder: Path, again: Sequence[str] = ()) -> str:
    """Render the Slurm script of the job that reports on a study's folder.

    `again` has arguments of `python -m slurm` that submit further launches; () submits none.
    """
    return _fill(
        "report.sh.j2",
        again=again,
        **_around(study, site, folder, "submit", _CURE),
        directives=report_directives(study, site),
    )


def _around(study: Study, site: Site, folder: Path, start: str, cure: str) -> dict[str, object]:
    """Return template values that all scripts need; `start` and `cure` go into error messages."""
    driver = "DRIVER" if site.setup.container else "PYTHON"
    words = {"start": start, "cure": cure, "driver": driver, "folder": str(folder)}
    return {"study": study, "site": site, "env": exports(site), **words}


def _runs(study: Study, text: str, site: Site, runs: Runs) -> dict[str, object]:
    """Return values for the template: the study, options that runs share, and lines of runs."""
    # one run of every point: its runs differ in seed, launch, position and log alone
    configs = [run.config for run in {run.point: run for run in runs}.values()]
    # all that [run] says, defaults too, lest a later default change them; what `single` is left out
    # of goes to each run's own line
    names = ("study", "study_sha256", *study.fields)
    shared = [name for name in names if len({tuple(c.to_words(name)) for c in configs}) == 1]
    of_cells = [name for name in study.fields if name not in shared]
    end_of_text = "END_OF_STUDY"  # ends a here-document, and is no line of the text
    while end_of_text in text.splitlines():
        end_of_text += "_"
    return {
        "text": text.rstrip("\n"),
        "end_of_text": end_of_text,
        "common": [shlex.join(configs[0].to_words(name)) for name in shared],
        "launches": _launches(together(runs, study, site), [*OWNED_FIELDS, *of_cells]),
        "total": len(runs),
    }


def _fill(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> jinja2.Environment:
    """Return Jinja's environment of the templates, cached, so that each is compiled only once."""
    import jinja2  # here: only rendering needs it, and the command line answers faster without

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        comment_start_string="<#",  # {# is bash
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: values pass through `quote`
    )
    environment.filters |= {"quote": shlex.quote, "join_quoted": shlex.join}
    return environment


def _launches(groups: Iterable[TurnGroup], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return each launch's index, seed and groups of command lines, with the options `fields`."""
    names = [name for name in fields if name not in _NOT_ON_THE_LINE]
    launches: dict[int | None, dict[str, Any]] = {}
    for runs, apart in groups:
        config, lines = runs[0].config, []
        for run in runs:
            options = (word for name in names for word in run.config.to_words(name))
            lines.append(shlex.join([run.id, str(run.config.world_size), *options]))
        head = f"apart {len(runs)} {shlex.quote(apart)}" if apart else f"turns {len(runs)}"
        empty: dict[str, Any] = {"index": config.launch, "seed": config.seed, "groups": []}
        group = {"head": head if len(runs) > 1 else "", "runs": lines}
        launches.setdefault(config.launch, empty)["groups"].append(group)
    return list(launches.values())


def directives(study: Study, site: Site, job: Job, wanted: int | None = None) -> list[str]:
    """List a job's sbatch options for `wanted` minutes, None: estimated. Raises UsageError."""
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
    """List the report job's options for sbatch: one process, at most 10 minutes, no GPU."""
    # a rank's memory comes with its CPUs
    cpus = {} if site.launch == "ibrun" else {"cpus-per-task": site.cpu.per_rank}
    most = min(10, site.limits.max_minutes or 10)
    resources = {"ntasks": 1, **cpus, "time": f"00:{most:02d}:00"}
    return _options(job_name(study, REPORT), site, 1, resources, requeue=False)


def _words(options: Mapping[str, object]) -> list[str]:
    """Return words --NAME=VALUE, or --NAME for True; leave out False, '', 0 and None."""
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
    """List the arguments of srun or ibrun that do not depend on the number of ranks."""
    if site.launch != "srun":
        return list(site.launch_args)
    bound = {"gpu-bind": site.gpu.bind, "cpu-bind": site.cpu.bind, "mpi": site.mpi}
    return [*_words({"kill-on-bad-exit": 1, **_gpus(site), **bound}), *site.launch_args]


def exports(site: Site) -> dict[str, str]:
    """Return every run's environment variables: the network's, and the site's, which win."""
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
    """Return `site`; for a hostfile, add mpirun arguments that name it and export variables."""
    if not site.hostfile:
        return site
    env = exports(site)
    named = [word for name in env if not name.startswith("OMPI_") for word in ("-x", name)]
    arguments = (*site.mpirun_args, "--hostfile", site.hostfile, *named)
    return site.model_copy(update={"mpirun_args": arguments, "env": env})
