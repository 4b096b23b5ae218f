"""Render runs as a job script: strict templates to text, nothing is written or started here."""

from __future__ import annotations

import functools
import math
import shlex
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.config import Role, RunConfig, UsageError, fields_with
from bench.study.definition import OWNED_FIELDS, Study
from bench.study.plan import Run, calibration_of, points
from slurm.directives import (
    Request,
    directives,
    exports,
    own_env,
    reaching_all_hosts,
    report_directives,
    step_args,
)
from slurm.fit import EARLY_S, Job, expected_s, minutes, nodes_of
from slurm.site import Site

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parent / "templates"

# Not repeated on a run's line: the script derives world size from RANKS and the log from ID, and
# names the study once.
_NOT_ON_THE_LINE = {"study", "world_size", "log_path"}


def render_job(
    study: Study,
    text: str,
    site: Site,
    runs: Sequence[Run],
    folder: Path,
    templates: Path = TEMPLATES,
) -> str:
    """The job script of `runs`, in their order, for a person to read, edit and run by hand from the
    repository root.

    `text` is the study's file, which the job leaves beside the logs as `python -m slurm run` does.

    Raises UsageError on a placeholder that the template names and nobody fills.
    """
    shared = _shared(study, [run.config for run in _one_of_each(runs)])
    return _fill(
        templates,
        "job.sh.j2",
        **_common(study, text, reaching_all_hosts(site), runs, folder, shared),
        **_around(site, "run", "run 'make setup' or say where it is: PYTHON=... MPIRUN=..."),
        directives=[],
        job=None,
        launch_args=reaching_all_hosts(site).mpirun_args,
        common=[shlex.join(runs[0].config.to_words(name)) for name in shared] if runs else [],
    )


def render_batch(
    study: Study, text: str, request: Request, job: Job, folder: Path, templates: Path = TEMPLATES
) -> str:
    """The Slurm script of one job, for a person to read, edit and submit by hand from the
    repository root.

    Raises UsageError where the site forbids what it needs, and on a placeholder that nobody fills.
    """
    site, calibration = request.site, _calibration(study, job)
    shared = _shared(study, [*(run.config for run in _one_of_each(job.runs)), calibration])
    own = [name for name in study.fields if name not in shared]
    plain = ("backend", "batch_per_rank", "world_size", "seed", "block", *own)
    nodes = sorted({nodes_of(run.config.world_size, site) for run in job.runs})
    return _fill(
        templates,
        "job.sh.j2",
        **_common(study, text, site, job.runs, folder, shared),
        **_around(site, "submit", _CURE),
        directives=directives(study, request, job),
        job=job,
        counts=", ".join(map(str, nodes)),
        minutes=minutes(job, study, site, request.minutes),
        expected_minutes=math.ceil(expected_s(job, study) / 60),
        early_s=EARLY_S,
        launch_args=step_args(site),
        common=[shlex.join(calibration.to_words(name)) for name in shared],
        calibration=shlex.join(word for name in plain for word in calibration.to_words(name)),
        preflight=shlex.join(_preflight(job)),
        cells=sorted({run.point.cell for run in job.runs} - {"single"}),
    )


def render_report(study: Study, request: Request, folder: Path, templates: Path = TEMPLATES) -> str:
    """The Slurm script that reports on a study's folder. Raises as `render_batch`."""
    return _fill(
        templates,
        "report.sh.j2",
        study=study,
        site=request.site,
        folder=str(folder),
        directives=report_directives(study, request),
        **_around(request.site, "submit", _CURE),
    )


_CURE = "see [setup] of the site, or PYTHON=... sbatch THIS_FILE"


def _around(site: Site, start: str, cure: str) -> dict[str, object]:
    """What a script sets up before it starts the driver, and what it says where it cannot."""
    driver = "DRIVER" if site.setup.container else "PYTHON"
    return {"env": exports(site), "start": start, "cure": cure, "driver": driver}


def _common(
    study: Study, text: str, site: Site, runs: Sequence[Run], folder: Path, shared: Sequence[str]
) -> dict[str, object]:
    """What the scripts of all sites say."""
    own = [name for name in study.fields if name not in shared]
    return {
        "study": study,
        "text": text.rstrip("\n"),
        "end_of_text": _end_of(text),
        "site": site,
        "folder": str(folder),
        "own_env": own_env(site),
        "blocks": _blocks(runs, [*OWNED_FIELDS, *own]),
        "total": len(runs),
    }


def _fill(templates: Path, name: str, **values: object) -> str:
    # imported here: only rendering needs it, and the command line answers faster without
    import jinja2

    try:
        return _environment(templates).get_template(name).render(**values)
    except jinja2.TemplateError as error:
        raise UsageError(f"{_place_in_template(error)}: {error}; correct the template") from None


@functools.cache
def _environment(templates: Path) -> jinja2.Environment:
    """Templates are compiled once, not once for every job of a study."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        comment_start_string="<#",  # {# is bash
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: values pass through `quote`
    )
    environment.filters["quote"] = shlex.quote
    environment.filters["join_quoted"] = shlex.join
    return environment


def _place_in_template(error: Exception) -> str:
    """File and line of a template, which jinja2 puts into the traceback."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.endswith(".j2")
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "template"


def _calibration(study: Study, job: Job) -> RunConfig:
    """At the baseline's batch, else at the smallest of the job."""
    alone = [point.batch_per_rank for point in points(study) if point.cell == "single"]
    batch = (alone or sorted(run.config.samples_per_rank for run in job.runs))[0]
    return calibration_of(study, batch, job.block)


def _preflight(job: Job) -> list[str]:
    """What the doctor is asked besides the cells: threads, and the data set that the job's runs
    read.
    """
    config = job.runs[0].config
    return [word for name in ("threads", "dataset", "data_dir") for word in config.to_words(name)]


def _end_of(text: str) -> str:
    """A word that ends a here-document and is no line of the text."""
    word = "END_OF_STUDY"
    while word in text.splitlines():
        word += "_"
    return word


def _shared(study: Study, configs: Sequence[RunConfig]) -> list[str]:
    """The fields that all runs share: all that [run] says, defaults too, lest a later default
    change them.

    What `single` is left out of goes to each run's own line.
    """
    return [
        name
        for name in ("study", *study.fields)
        if len({tuple(config.to_words(name)) for config in configs}) == 1
    ]


def _one_of_each(runs: Sequence[Run]) -> list[Run]:
    """One run of every point: its runs differ in fields of Role.PER_RUN alone."""
    return list({run.point: run for run in runs}.values())


def _blocks(runs: Sequence[Run], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Runs by block, each as its line: id, ranks and the options that are its own."""
    names = [name for name in fields if name not in _NOT_ON_THE_LINE]
    per_run = fields_with(Role.PER_RUN)
    fixed = {
        run.point: {n: run.config.to_words(n) for n in names if n not in per_run}
        for run in _one_of_each(runs)
    }
    blocks: dict[int, dict[str, Any]] = {}
    for run in runs:
        config, known = run.config, fixed[run.point]
        options = (known[name] if name in known else config.to_words(name) for name in names)
        words = [run.id, str(config.world_size), *(word for option in options for word in option)]
        assert config.block is not None
        block = blocks.setdefault(
            config.block, {"index": config.block, "seed": config.seed, "runs": []}
        )
        block["runs"].append(shlex.join(words))
    return list(blocks.values())
