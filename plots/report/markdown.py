"""The page, the answer first: its sections in Markdown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bench.backends.catalogue import label
from bench.study.stats import EXACT, MIN_BLOCKS
from plots.analyse.points import NotCompared
from plots.analyse.runs import Loaded
from plots.analyse.steady_state import ENOUGH_STEPS, ENOUGH_WINDOWS
from plots.analyse.study import Analysis, gloo_builds, machine, workload
from plots.report import answer, methods, verdicts
from plots.report.checks import checks, standing
from plots.report.format import (
    Markdown,
    count,
    escape,
    rule,
    table,
)
from plots.report.onward import onward
from plots.report.sections import EXHIBITS, Exhibit
from plots.report.why import why

_SETTINGS = {
    "shipped": "each framework's own defaults",
    "matched": "equal bucket bytes, no buffers exchanged in a step",
    "tuned": "a knob of the framework set by hand",
}
_MOST_PAIRS = 1  # of one reason why they were not compared


@dataclass(frozen=True)
class Section:
    """What stands under one heading, in Markdown."""

    title: str
    text: str
    folded: bool  # in report.html alone, where a click opens it


@dataclass(frozen=True)
class Page:
    """All of it, from which report.md and report.html are put together."""

    title: str
    head: str
    sections: Sequence[Section]

    def markdown(self, folded: bool = False) -> str:
        """Write the folded sections, or all else."""
        texts = [] if folded else [f"# {escape(self.title)}", self.head]
        shown = (one for one in self.sections if one.folded == folded)
        texts += (f"## {escape(one.title)}\n\n{one.text}" for one in shown)
        return "\n\n".join(texts) + "\n"


def page(a: Analysis, drawn: Sequence[str]) -> Page:
    """Write every section that has something to say; `drawn` names the figures beside the page."""
    # whatever the template writes is escaped: anybody wrote logs, studies and sites
    template = templates(finalize=escape).get_template("prose.md.j2")
    context = template.new_context(_context(a, drawn))

    def prose(name: str) -> str:
        block = template.blocks.get(name)
        return "".join(block(context)).strip("\n") if block else ""

    def text(one: Exhibit) -> str:
        rows = one.table(a)
        return "\n\n".join(
            filter(None, (prose(one.block), rows) if rows or not one.columns else ())
        )

    sections = []
    for (_, folded), group in groupby(EXHIBITS, key=lambda one: (one.title, one.folded)):
        exhibits = [one for one in group if one.title]
        if texts := [*filter(None, map(text, exhibits))]:
            sections.append(Section(exhibits[0].heading(a), "\n\n".join(texts), folded))
    names = " against ".join(label(cell) for cell in (a.candidate, a.reference))
    return Page(f"{a.loaded.study.name}: {names}", prose("head"), sections)


def _context(a: Analysis, drawn: Sequence[str]) -> dict[str, Any]:
    runs, checked = a.loaded.runs, checks(a)
    reference, candidate = verdicts.sides(a.reference, a.candidate)
    return {
        "a": a,
        "study": a.loaded.study,
        "settings": _meanings({*runs.loc[runs["cell"] != "single", "settings"]}),
        "reference": reference,
        "candidate": candidate,
        "opening": answer.opening(a),
        "answers": [finding.markdown for finding in answer.findings(a)],
        "machine": machine(a.loaded.host),
        "workload": workload(a),
        "gloo": gloo_builds(a),
        "standing": standing(checked),
        "why": why(a),
        "next": onward(a),
        "checked": checked,
        "figures": drawn,
        "crashed": int((runs["exit_code"].fillna(0) != 0).sum()),
        "provenance": _provenance(a.loaded),
        "methods": methods.paragraph(a),
        "limits": methods.limits(a),
        "not_compared": list(_by_reason(a.not_compared)),
        "min_blocks": MIN_BLOCKS,
        "exact": EXACT,
        "enough": (ENOUGH_STEPS, ENOUGH_WINDOWS),
        "count": count,
        "rule": rule,
    }


def templates(**options: Any) -> Environment:
    """Load the templates that render the pages: the files beside this module."""
    loader = FileSystemLoader(Path(__file__).parent)
    blank: Any = {"trim_blocks": True, "lstrip_blocks": True, **options}
    return Environment(loader=loader, undefined=StrictUndefined, **blank)


def _meanings(settings: Collection[str]) -> Markdown:
    known = (f"`{name}`: {text}" for name, text in _SETTINGS.items() if name in settings)
    return Markdown("; ".join(known))


def _by_reason(missing: Iterable[NotCompared]) -> Iterator[str]:
    """Write a line for each reason with the first pairs it holds for; the details have all."""
    pairs: dict[str, list[str]] = defaultdict(list)
    for item in missing:
        pairs[item.reason].append(item.pair)
    for reason, texts in pairs.items():
        more = len(texts) - _MOST_PAIRS
        yield f"{'; '.join(texts[:_MOST_PAIRS])}{f'; and {more} more' * (more > 0)}: {reason}"


def _provenance(loaded: Loaded) -> Markdown:
    """Tabulate what runs recorded of where they ran; count the runs where not all have a value."""
    rows = [["machine", machine(loaded.host)]]
    recorded = loaded.runs["recorded"].tolist()
    for part in ("versions", "git", "env", "platform"):
        names = sorted({name for one in recorded for name in one if name.startswith(part)})
        values = [f"{name.partition('.')[2]} {_by_runs(name, recorded)}".strip() for name in names]
        rows += [[part, ", ".join(values)]] if values else []
    return Markdown(table([f"of {count(len(recorded), 'usable run')}", ""], rows))


def _by_runs(name: str, recorded: Sequence[Mapping[str, str]]) -> str:
    values = Counter(one.get(name, "unset") for one in recorded)
    if len(values) == 1:
        return next(iter(values))
    return " or ".join(f"{value} ({count(n, 'run')})" for value, n in values.most_common())
