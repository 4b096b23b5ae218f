"""Pages of one study or of several compared: sections of rows, as Markdown and as one HTML file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bench.backends import catalogue
from bench.record.events import machine_of
from bench.study import stats
from bench.study.comparability import TAKEN
from bench.study.words import count, rule
from plots.analyse.study import Analysis, gloo_builds
from plots.report.findings import Statement, standing, trains
from plots.report.format import clean, escape, slug
from plots.report.labels import sides
from plots.report.tables import Cells, ReportTable, shown, tables

_SETTINGS = {
    "shipped": "each framework's own defaults",
    "matched": "equal bucket bytes, no buffers exchanged in a step",
    "tuned": "a knob of the framework set by hand",
}
_IDS = re.compile(r"""(\bid="|url\(#|xlink:href="#)""")
Part = str | list[str] | Cells  # a paragraph, a list, a table


@dataclass(frozen=True)
class Section:
    """What stands under a heading. HTML folds it at `depth` 1 and 2, report.md omits it at 2."""

    title: str
    parts: Sequence[Part]
    depth: int = 0


@dataclass(frozen=True)
class Page:
    """Contents of a page, from which Markdown and HTML are rendered."""

    title: str
    sections: Sequence[Section]
    question: str = ""
    findings: Sequence[Statement] = ()
    figures: Sequence[str] = ()  # by name, those of the first screen first


def page(a: Analysis, whole: Sequence[Statement], drawn: Sequence[str]) -> Page:
    """Make a study's page: findings `whole`, sections that are not empty, and figures `drawn`."""
    # anybody wrote logs, studies and sites
    prose = _environment(finalize=lambda value: clean(str(value), 1000))
    template = prose.get_template("prose.j2")
    context = template.new_context(_context(a))

    def parts(table: ReportTable) -> Iterator[Part]:
        if table.rows is not None and not (table.rows and table.columns):
            return
        block = template.blocks.get(table.note or table.key.rpartition(".")[2])
        yield from _prose("".join(block(context)) if block else "")
        if table.rows:
            yield shown(table.columns, table.rows)

    sections = []
    for (title, depth), group in groupby(tables(a), key=lambda one: (one.title, one.depth)):
        if texts := [part for table in group for part in parts(table)]:
            sections.append(Section(title, texts, depth))
    study = a.loaded.study
    names = " against ".join(
        map(catalogue.label, dict.fromkeys((study.candidate, study.reference)))
    )
    kinds = "accuracy" if trains(a) else "ratio", "scaling"
    first = [next((name for name in drawn if name.startswith(kind)), "") for kind in kinds]
    order = [*filter(None, first), *(name for name in drawn if name not in first)]
    return Page(f"{study.name}: {names}", sections, study.question, whole, order)


def _prose(text: str) -> Iterator[str | list[str]]:
    """Yield a text's lines as paragraphs, and adjacent lines that begin with '- ' as one list."""
    lines = [line for line in text.splitlines() if line.strip()]
    for listed, group in groupby(lines, key=lambda line: line.startswith("- ")):
        if listed:
            yield [line.removeprefix("- ") for line in group]
        else:
            yield from group


def _context(a: Analysis) -> dict[str, Any]:
    """Return the variables of prose.j2: the analysis, values computed from it, and functions."""
    runs, places = a.loaded.runs, a.loaded.host.get("ranks", ())

    def span(column: str) -> str:
        ends = runs[column].min(), runs[column].max()
        return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in ends))

    on_machines = Counter(map(machine_of, places))
    cores = min((rank["cpus_on_node"] for rank in places if rank.get("cpus_on_node")), default=0)
    threads = max((rank.get("threads", 1) for rank in places), default=1)
    compared = [catalogue.facts(cell) for c in a.comparisons for cell in (c.reference, c.candidate)]
    work = (f"{row.short_label} {row.on_one_rank}" for row in compared if row.on_one_rank)
    used = {*runs.loc[runs["cell"] != "single", "settings"]}
    return {
        "a": a,
        "study": a.loaded.study,
        "sides": sides(a),
        "settings": "; ".join(f"{k}: {v}" for k, v in _SETTINGS.items() if k in used),
        "gloo": gloo_builds(a),
        "sizes": sorted({*runs["world_size"]}),
        "nodes": len({rank["hostname"] for rank in places}),
        "machines": len(on_machines),
        "full": cores and max(on_machines.values()) * threads >= cores and not a.emulated(),
        "on_one_rank": list(dict.fromkeys(work)),
        "crashed": int((runs["exit_code"].fillna(0) != 0).sum()),
        "turns": bool((runs["turns"] == TAKEN).all()),
        "devices": {one.get("device") for one in runs["facts"]},
        "span": span,
        "stats": stats,
        "count": count,
        "rule": rule,
    }


def _environment(**options: Any) -> Environment:
    """Make the Jinja environment that loads the templates beside this module."""
    loader = FileSystemLoader(Path(__file__).parent)
    blank: Any = {"trim_blocks": True, "lstrip_blocks": True, **options}
    environment = Environment(loader=loader, undefined=StrictUndefined, **blank)
    environment.globals.update(standing=standing, slug=slug, clean=clean)
    return environment


def markdown(whole: Page, deepest: int = 1) -> str:
    """Render a page as Markdown, without sections of a `depth` above `deepest`."""
    environment = _environment(finalize=lambda value: escape(value, 20_000))
    return environment.get_template("page.md.j2").render(page=whole, deepest=deepest)


def html(whole: Page, figures: Mapping[str, str]) -> str:
    """Render a page as one HTML text, which needs no network; `figures` holds SVG texts by name."""
    template = _environment(autoescape=True).get_template("page.html.j2")
    script = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
    drawn = []
    for name in whole.figures:
        # each drawing gets identifiers that no other one has
        drawing = _IDS.sub(rf"\g<1>{name}-", figures[name][figures[name].index("<svg") :])
        drawn.append(Markup(f'<figure id="figure-{name}">{drawing}</figure>'))
    return template.render(page=whole, drawn=drawn, script=Markup(script))
