"""`check`: measure a few minutes here, compare with this machine's reference, and say so."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from bench.config import UsageError
from bench.options import Shown, option, split_commas
from bench.shell import Command
from bench.study.folder import RESULTS
from bench.study.limits import MAX_BLOCKS
from slurm.check.reference import (
    LEAST_LAUNCHES,
    changed_versions,
    read_reference,
    require_same,
    require_whole,
    unlike,
    workload,
    write_reference,
)
from slurm.waves import seconds

if TYPE_CHECKING:
    from slurm.check.answer import Answer


class CheckMachine(Command):
    """Compare this machine's images/s with its own reference, in ten minutes at most.

    Both frameworks run by turns, here: inside a Slurm job as steps of it, else under mpirun.
    Nothing is submitted. Exit code 0: within the tolerance, 1: slower, 2: wrong input, 3: could not
    measure, because runs failed, the time was too short, the machine is another or its noise too
    large. The tolerance is what the machine's own noise allows, as its reference measured it.
    """

    example: ClassVar[str] = "python -m slurm check --reference machine.json --ranks 2"

    study: str = option(
        "", "what to run; default: check, over NCCL check-gpu", shown=Shown("STUDY")
    )
    reference: Path = option(..., "JSON file, written by --write-reference")
    ranks: int = option(..., "world size", ge=1, le=2**20)
    write_reference: bool = option(False, "add a session to the reference instead: several days'")
    cells: Annotated[tuple[str, ...], BeforeValidator(split_commas), Shown(metavar="A,B")] = option(
        (), "of them alone; default: all of the study's, over the site's transport"
    )
    site: str = option("", "default: this Slurm job, or outside one the site local")
    results: Path = option(
        RESULTS, "the check's folder is made in it", shown=Shown(metavar="FOLDER")
    )
    budget: Annotated[int, BeforeValidator(seconds)] = option(
        "10m",
        "end within it, but for a launch that must be killed: 90s, 15m",
        validate_default=True,
        shown=Shown(metavar="TIME"),
    )
    blocks: int = option(6, "launches at most", ge=LEAST_LAUNCHES, le=MAX_BLOCKS, multiple_of=2)
    tolerance: float | None = option(
        None, "fall that counts as none, 0.05 is 5 %; default: as measured, 2 % or more", gt=0, lt=1
    )
    inject_ms: float = option(0.0, "try the alarm: sleep of every rank in every step", ge=0)
    format: Literal["text", "json", "junit", "bencher"] = option("text", "of standard output")

    def run(self) -> int:
        try:
            return self._run()
        except (UsageError, OSError, ImportError):
            raise  # one line, exit code 2
        except Exception:
            traceback.print_exc()
            return 3  # Python's own code of a crash would say that the machine is slower

    def _run(self) -> int:
        # here: scipy is slow to load, and not every system has the file locks of a run
        from slurm.check.answer import Answer, compare, outcome
        from slurm.check.measure import NotMeasured, make_plan, measure, site_of

        if self.write_reference:
            self._require_writable()
        reference = None
        if not self.write_reference or self.reference.exists():
            reference = read_reference(self.reference)
        site = site_of(self.site, self.ranks)
        options = self.model_dump(include={"study", "ranks", "cells", "blocks", "inject_ms"})
        name = self.site or site.name
        planned = make_plan(site, self.results, self.budget, site_name=name, **options)
        work = workload(planned.study)
        if reference:
            require_same(reference, work, self.reference)
            if self.write_reference:
                require_whole(reference, work, self.reference)
        folder = str(planned.folder.path)
        try:
            now, problem = measure(planned, self.budget)
            if reference and (why := unlike(reference, now)):
                raise NotMeasured(why)
        except NotMeasured as error:
            return self._say(Answer("could not measure", str(error), self.ranks, folder=folder))
        if self.write_reference:
            count = write_reference(self.reference, work, now)
            launches = len(next(iter(now.cells.values())).images_per_s)
            print(f"{self.reference}: session {count}, of {launches} launches; logs: {folder}")
            if problem:
                print(f"warning: {problem}", file=sys.stderr)
            return 0
        assert reference is not None  # it was read above
        comparisons = tuple(compare(reference, now, self.tolerance))
        versions = ", ".join(changed_versions(reference, now))
        notes = filter(None, [problem, versions and f"since the reference: {versions}"])
        return self._say(
            Answer(*outcome(comparisons), self.ranks, comparisons, tuple(notes), folder)
        )

    def _require_writable(self) -> None:
        """Raise UsageError, before anything is measured, where a session could not be kept."""
        if self.inject_ms:
            cure = "drop one of them"
            raise UsageError(f"--inject-ms would spoil what --write-reference keeps; {cure}")
        if not os.access(self.reference.parent, os.W_OK):
            cure = "make it, or choose another --reference"
            raise UsageError(f"{self.reference.parent} is no folder that can be written; {cure}")

    def _say(self, answer: Answer) -> int:
        """The answer on standard output; for people on standard error too, in another format."""
        from slurm.check.answer import FORMATS

        if self.format != "text":
            print(FORMATS["text"](answer), file=sys.stderr)
        with suppress(BrokenPipeError):  # a reader that has gone is no slow machine
            print(FORMATS[self.format](answer))
        return answer.exit_code
