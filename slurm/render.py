"""Render runs as a job script: strict templates to text, nothing is written or started here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurm.plan import Run
from slurm.site import Site
from slurm.study import OWNED_FIELDS, Study

TEMPLATES = Path(__file__).parent / "templates"

# Not repeated on a run's line: the script derives world size from RANKS and the log from ID, and names the study once.
_NOT_ON_THE_LINE = {"study", "world_size", "log_path"}


def render_job(study: Study, text: str, site: Site, runs: Sequence[Run], folder: Path, templates: Path = TEMPLATES) -> str:
    """The job script of `runs`, in their order, for a person to read, edit and run by hand from the repository root.

    `text` is the study's file, which the script leaves beside the logs as `python -m slurm run` does.

    Raises jinja2.UndefinedError on a placeholder the template names and nobody fills.
    """
    import jinja2  # imported here: only rendering needs it, and the command line answers faster without

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: values pass through `quote`
    )
    environment.filters["quote"] = shlex.quote
    environment.filters["join_quoted"] = shlex.join
    shared = _shared(study, runs)
    return environment.get_template(f"{site.name}.sh.j2").render(
        study=study,
        text=text.rstrip("\n"),
        end_of_text=_end_of(text),
        site=site,
        folder=str(folder),
        common=[shlex.join(runs[0].config.to_words(name)) for name in shared] if runs else [],
        blocks=_blocks(runs, [*OWNED_FIELDS, *(name for name in study.run if name not in shared)]),
        total=len(runs),
    )


def _end_of(text: str) -> str:
    """A word that ends a here-document and is no line of the text."""
    word = "END_OF_STUDY"
    while word in text.splitlines():
        word += "_"
    return word


def _shared(study: Study, runs: Sequence[Run]) -> list[str]:
    """The fields that all runs share: all that [run] says, defaults too, lest a later default change them.

    What `single` is left out of goes to each run's own line.
    """
    return [name for name in ("study", *study.run) if len({tuple(run.config.to_words(name)) for run in runs}) == 1]


def _blocks(runs: Sequence[Run], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Runs by block, each as its line: id, ranks and the options that are its own."""
    blocks: dict[int, dict[str, Any]] = {}
    for run in runs:
        config = run.config
        options = (config.to_words(name) for name in fields if name not in _NOT_ON_THE_LINE)
        words = [run.id, str(config.world_size), *(word for option in options for word in option)]
        assert config.block is not None
        block = blocks.setdefault(config.block, {"index": config.block, "seed": config.seed, "runs": []})
        block["runs"].append(shlex.join(words))
    return list(blocks.values())
