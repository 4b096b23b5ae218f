"""A study at a site, its folder, and the state of its runs: what every command starts from."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from bench.config import UsageError
from bench.options import Shown, option, split_commas
from bench.shell import Command
from bench.study.definition import MAX_SECONDS, Study
from bench.study.files import read_study, read_text
from bench.study.folder import RESULTS, StudyFolder
from bench.study.looks import MAX_LAUNCHES, MIN_LAUNCHES, STEP
from bench.study.plan import PlannedRun, plan
from bench.study.status import RunStatus, duration, look, not_comparable, seconds_left
from slurm.fit import Job, fit, jobs, text_of
from slurm.render import render_batch, render_job, render_report
from slurm.site import Site, Word, find_study, read_site

_SITE = "a name in slurm/sites, or the path of your own"


# meaningless without a scheduler
OF_JOBS = ("minutes", "account", "reservation")


class StudyOptions(Command):
    """Options of a command on a study: the study, its site and its jobs."""

    hidden: ClassVar[tuple[str, ...]] = OF_JOBS

    study: str = option(
        ..., "a study file, a study's folder, or a shipped study's name", shown=Shown("STUDY")
    )
    site: str = option("local", _SITE)
    results: Path = option(
        RESULTS, "folder with one folder per study", shown=Shown(metavar="FOLDER")
    )
    launches: int | None = option(
        None, "in all, and no more; default: until it is settled", ge=1, le=MAX_LAUNCHES
    )
    nodes: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(split_commas)] = (
        option((), "instead of the study's own", shown=Shown(metavar="1,2,4"))
    )
    time_limit_s: int | None = option(None, "seconds a run may take", ge=1, le=MAX_SECONDS)
    minutes: int | None = option(
        None, "of each job; default: as needed", ge=1, le=MAX_SECONDS // 60
    )
    account: Word = option("", "project that is charged, where the site wants one")
    reservation: Word = option("", "of nodes, in which the jobs shall run")

    def words(self) -> list[str]:
        """Return the options as command-line words, except --launches, which the folder records."""
        words = [self.study, "--site", self.site]
        for name in ("results", "nodes", "time_limit_s", *OF_JOBS):
            if (value := getattr(self, name)) and value != RESULTS:
                words += self.to_words(name)
        return words


class ClusterOptions(StudyOptions):
    """Options of a command that requires --site, as there is no default cluster."""

    site: str = option(..., _SITE)


@dataclass(frozen=True)
class Work:
    """A study fitted to a site, with the states of its runs.

    `text` is what the study's file says; `statuses` has all runs of the first `launches` launches.
    """

    text: str
    study: Study
    site: Site
    folder: StudyFolder
    launches: int
    statuses: list[RunStatus]
    options: StudyOptions

    @property
    def looks(self) -> bool:
        """Whether launches may be added until the comparison is settled.

        They may not if the study compares nothing, trains to a target or plans fewer than
        MIN_LAUNCHES, or if --launches is given.
        """
        study = self.study
        compares = (
            study.comparisons and "target" not in study.fields and study.launches >= MIN_LAUNCHES
        )
        return bool(compares and not self.options.launches)

    @property
    def most(self) -> int:
        """The largest number of launches that the study may reach."""
        return max(self.launches, self.study.max_launches) if self.looks else self.launches

    @property
    def launches_planned(self) -> str:
        """The number of launches in words, such as '6 launches of at most 20'."""
        most = f" of at most {self.most}" if self.most > self.launches else ""
        return f"{self.launches} launch{'' if self.launches == 1 else 'es'}{most}"

    @property
    def todo(self) -> list[PlannedRun]:
        """The runs left to do: those not ok or not comparable, and those compared with them."""
        return not_comparable(self.statuses, self.study.pairs)

    @property
    def estimate(self) -> str:
        return duration(seconds_left(self.todo, self.statuses, self.study.expected_run_s))

    @property
    def jobs(self) -> list[Job]:
        """The Slurm jobs of the runs left to do, for a site with a scheduler."""
        return jobs(self.todo, self.site)

    def script(self) -> str:
        """Render the job script of the runs left to do, for a site without a scheduler."""
        return render_job(self.study, self.text, self.site, self.todo, self.folder.path)

    def batch_script(self, job: Job) -> str:
        """Render a job's script. Raises UsageError if the minutes are too few or too many."""
        minutes = self.options.minutes
        return render_batch(self.study, self.text, self.site, job, self.folder.path, minutes)

    def report_script(self) -> str:
        """Render the report job's script, which also submits more launches if `looks` is true."""
        again = ["submit", *self.options.words()] if self.looks else []
        return render_report(self.study, self.site, self.folder.path, again)


def open_work(options: StudyOptions, locked: bool = False, launches: int | None = None) -> Work:
    """Return a study fitted to its site, with its runs' states; write no file. Raises UsageError.

    `locked`: the caller holds the lock. `launches` to plan; None: as options or earlier jobs ask.
    """
    source = find_study(options.study)
    written, site, nodes = read_study(source), read_site(options.site), options.nodes
    # the command line's go before the site's
    named = {name: getattr(options, name) for name in ("account", "reservation")}
    access = {name: value for name, value in named.items() if value}
    site = site.model_copy(update={"access": site.access.model_copy(update=access)})
    study = fit(written, site, nodes, source)
    if options.time_limit_s:
        study = study.model_copy(update={"time_limit_s": options.time_limit_s})
    folder = StudyFolder(short(_results_of(options, source, study)), study)
    kept = folder.kept()
    if written.up_to_nodes and not nodes and kept is not None:
        # how far it goes was decided when it was first submitted, perhaps with --nodes
        study = study.model_copy(update={"world_sizes": kept.world_sizes, "batch": kept.batch})
    text = text_of(study, written, read_text(source))
    if "seed" not in study.model_fields_set:
        # the one that the folder keeps; before there is one, who holds the lock draws it, to be
        # kept, and everybody else gets the same preview
        seed, origin = 0, "a preview: the first run draws the study's seed"
        if kept is not None or locked:
            seed, origin = kept.seed if kept else secrets.randbits(31), "drawn at the first run"
        study = study.model_copy(update={"seed": seed})
        text = f"seed = {seed}  # {origin}\n{text}"
    folder.check_same(study)
    _check_launches(study, options)
    launches = launches or options.launches or folder.asked_launches(study)
    if kept is not None:  # more may have been added since: the runs name the study as planned
        study = study.model_copy(update={"launches": kept.launches})
    job_is_running = not locked and folder.is_locked()
    runs = [run for launch in plan(study, launches, folder.runs) for run in launch]
    statuses = [look(run, job_is_running) for run in runs]
    return Work(text, study, site, folder, launches, statuses, options)


def _results_of(options: StudyOptions, source: Path, study: Study) -> Path:
    """Return --results; if left out, the parent of a STUDY that is a folder. Raises UsageError."""
    folder = Path(options.study)
    if source != folder / "study.toml" or options.results != RESULTS:
        return options.results
    if (name := folder.resolve().name) != study.name:
        holds = f"{folder} holds study {study.name!r}, whose folder has that name"
        raise UsageError(f"{holds}; rename {name!r}, or name a --results for its runs")
    return folder.resolve().parent


def _check_launches(study: Study, options: StudyOptions) -> None:
    """Raise UsageError for more than max_launches, or for an odd number above 1 in a comparison."""
    launches = options.launches or study.launches
    named = f"--launches {launches}" if options.launches else f"launches={launches}"
    if launches > 1 and launches % STEP and (study.pairs or study.arms):
        rule = "must be even: in half of the launches each side of a comparison runs first"
        raise UsageError(f"{named} {rule}; use {launches - 1} or {launches + 1}")
    if launches > study.max_launches:
        rule = (
            f"is more than max_launches={study.max_launches}, which is fixed before the first run"
        )
        raise UsageError(f"{named} {rule}; begin a new study with max_launches = {launches}")


def short(path: Path, follow: bool = True) -> Path:
    """Return `path`, relative if below the current folder; `follow`: resolve symlinks before."""
    whole = path.resolve() if follow else path.absolute()
    return whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else path
