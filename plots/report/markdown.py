"""report.md: the answer first, then figures, tables and how each number is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel

from bench.backends.catalogue import label
from bench.study.stats import MIN_BLOCKS
from plots.analyse.comparison import VISIBLE_EFFECT
from plots.analyse.points import Table, ranks
from plots.analyse.study import Analysis, machine, workload
from plots.report import answer, format, tables
from plots.report.calibration import findings
from plots.report.columns import markdown as table
from plots.report.verdicts import sides

_MOST_NODES = 24  # the slowest first; the rest are in the file


def markdown(analysis: Analysis, drawn: list[str]) -> str:
    """The page, with `drawn` the names of the figures beside it."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    runs, host = analysis.loaded.runs, analysis.loaded.host
    means = [mean for blocks in analysis.table.blocks.values() for mean in blocks.values()]
    facts = [f for mean in means for f in mean.facts]
    a: Analysis = told(analysis)
    reference, candidate = sides(a.reference, a.candidate)
    return environment.get_template("page.md.j2").render(
        a=a,
        study=a.loaded.study,
        title=" against ".join(label(cell) for cell in (a.candidate, a.reference)),
        reference=reference,
        candidate=candidate,
        machine=format.escape(machine(host)),
        workload=format.escape(workload(analysis)),
        notes=[format.escape(note) for note in analysis.notes],
        figures=drawn,
        not_steady=told(runs[~runs["steady"].astype(bool)].to_dict("records")),
        crashed=int((runs["exit_code"].fillna(0) != 0).sum()),
        provenance=_provenance(host),
        answer=answer,
        calibration=findings,
        compiled=any(f.get("compile") == "True" for f in facts),
        compressed=sorted({f.get("compression", "none") for f in facts} - {"none"}),
        ranks=ranks,
        tables=tables,
        table=table,
        count=format.count,
        rule=format.rule,
        min_blocks=MIN_BLOCKS,
        most_nodes=_MOST_NODES,
        visible=VISIBLE_EFFECT,
    )


def told(x: Any) -> Any:
    """A copy in which every text is escaped: logs, studies and sites were written by anybody.

    Frames and the table of points stay as they are: nothing is printed from them unescaped.
    """
    match x:
        case str():
            return format.escape(x)
        case Table():
            return x
        case BaseModel():
            names = type(x).model_fields
            return x.model_copy(update={name: told(getattr(x, name)) for name in names})
        case Mapping():
            return {told(k): told(v) for k, v in x.items()}
        case tuple() if hasattr(x, "_fields"):
            return type(x)(*map(told, x))
        case tuple() | list():
            return type(x)(map(told, x))
        case _ if is_dataclass(x) and not isinstance(x, type):
            return replace(x, **{f.name: told(getattr(x, f.name)) for f in fields(x)})
        case _:
            return x


def _provenance(host: Mapping[str, Any]) -> str:
    """What the widest run recorded about where it ran."""
    rows = [["machine", format.escape(machine(dict(host)))]]
    for part in ("versions", "git", "env"):
        found = host.get(part)
        if isinstance(found, dict) and found:
            rows.append([part, ", ".join(format.escape(f"{k} {v}") for k, v in found.items())])
    if "platform" in host:
        rows.append(["platform", format.escape(str(host["platform"]))])
    return format.table(["of the run with most ranks", ""], rows)
