"""report.md: the answer first, then figures, tables and how each number is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel

from bench.backends.catalogue import label
from bench.study import stats
from plots.analyse import comparison
from plots.analyse.comparability import DigestCheck
from plots.analyse.nodes import Calibrated
from plots.analyse.points import Table, ranks
from plots.analyse.study import Analysis, machine, workload
from plots.report import answer, calibration_tables, tables
from plots.report.columns import markdown as markdown_of
from plots.report.format import (
    count,
    escape,
    table,
)
from plots.report.verdicts import sides

T = TypeVar("T")


def markdown(a: Analysis, drawn: list[str]) -> str:
    """The page, with `drawn` the names of the figures beside it."""
    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=folder,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    raw, a = a, told(a)
    loaded = a.loaded
    return environment.get_template("page.md.j2").render(
        study=loaded.study,
        title=" against ".join(label(cell) for cell in (a.candidate, a.reference)),
        versus=answer.versus(a),
        reference=sides(a.reference, a.candidate)[0],
        candidate=sides(a.reference, a.candidate)[1],
        transport="" if "/" in a.reference else " on the same transport",
        answers=answer.lines(a),
        blocks=a.blocks,
        machine=escape(machine(raw.loaded.host)),
        workload=escape(workload(raw)),
        notes=[escape(note) for note in raw.notes],
        primary=any(c.primary for c in a.comparisons),
        figures=drawn,
        ratios=markdown_of(tables.ratios(a), a.comparisons),
        checks=markdown_of(tables.CHECKS, a.comparisons),
        visible=comparison.VISIBLE_EFFECT,
        not_compared=a.not_compared,
        throughput=markdown_of(tables.THROUGHPUT, a.throughput),
        waited=any(t.input_share is not None for t in a.throughput),
        apart=_apart(a),
        gains=markdown_of(tables.GAINS, a.gains) if a.gains else "",
        pipelines=markdown_of(tables.PIPELINES, a.pipelines) if a.pipelines else "",
        scaling=markdown_of(tables.SCALING, a.efficiency),
        planned=len(a.planned) if loaded.study.blocks else 0,
        gaps=a.gaps,
        gaps_table=markdown_of(tables.GAPS, a.gaps),
        calibrated=a.calibrated,
        **_calibration(a.calibrated),
        step_times=markdown_of(tables.STEP_TIMES, a.step_times),
        not_steady=[
            f"`{escape(r['log'])}`: {escape(r['not_steady_reason'])}"
            for _, r in loaded.runs[~loaded.runs["steady"].astype(bool)].iterrows()
        ],
        equal_work=_equal_work(a),
        usable=len(loaded.runs),
        loader_runs=len(loaded.pipelines),
        crashed=int((loaded.runs["exit_code"].fillna(0) != 0).sum()),
        unusable=loaded.unusable,
        superseded=loaded.superseded,
        unusable_table=markdown_of(tables.LOGS, loaded.unusable),
        superseded_table=markdown_of(tables.LOGS, loaded.superseded),
        provenance=_provenance(raw.loaded.host),
        min_blocks=stats.MIN_BLOCKS,
        percent=lambda x: f"{100 * x:g} %",
        count=count,
    )


def _calibration(c: Calibrated | None) -> dict[str, Any]:
    if c is None:
        return {}
    unusable = [one for one in c.all if not one.usable]
    return {
        "calibration_findings": calibration_tables.findings(c),
        "nodes": markdown_of(calibration_tables.NODES, c.nodes[: calibration_tables.SHOWN]),
        "more_nodes": max(0, len(c.nodes) - calibration_tables.SHOWN),
        "drift": markdown_of(calibration_tables.DRIFT, c.jobs),
        "calibration_unusable": unusable and markdown_of(calibration_tables.CALIBRATIONS, unusable),
        "same_nodes": c.scaling and markdown_of(tables.SCALING, c.scaling),
    }


def told(x: T) -> T:
    """A copy in which every text is escaped: logs, studies and sites were written by anybody.

    Frames and the table of points stay as they are: nothing is printed from them unescaped.
    """
    return cast(T, _told(x))


def _told(x: Any) -> Any:
    match x:
        case str():
            return escape(x)
        case Table():
            return x
        case BaseModel():
            return x.model_copy(
                update={name: _told(getattr(x, name)) for name in type(x).model_fields}
            )
        case Mapping():
            return {_told(k): _told(v) for k, v in x.items()}
        case tuple() if hasattr(x, "_fields"):
            return type(x)(*map(_told, x))
        case tuple() | list():
            return type(x)(map(_told, x))
        case _ if is_dataclass(x) and not isinstance(x, type):
            return replace(x, **{f.name: _told(getattr(x, f.name)) for f in fields(x)})
        case _:
            return x


def _apart(a: Analysis) -> list[str]:
    """What a reader must know about numbers of runs that are reported apart."""
    facts = [
        f for blocks in a.table.blocks.values() for mean in blocks.values() for f in mean.facts
    ]
    lines = []
    if any(p.variant for p in a.table.blocks):
        lines.append(
            "Variants are never mixed either: each is compared with itself alone, in rows and "
            "figures of its own."
        )
    if any(f.get("compile") == "True" for f in facts):
        lines.append(
            "`compile=True` takes away the overlap of the backward pass with an exchange that "
            "gradients' hooks start."
        )
    if found := sorted({f["compression"] for f in facts if f.get("compression", "none") != "none"}):
        lines.append(
            f"`compression={'`, `'.join(found)}` rounds gradients on the way: one process rounds "
            f"nothing, so only its speed is a "
            "baseline."
        )
    return lines


def _equal_work(a: Analysis) -> list[str]:
    excluded = len(a.not_compared)
    but = ", and the environment where it says so" if any(c.unequal for c in a.comparisons) else ""
    lines = [
        f"Pairs set aside because the work differed, or one side is missing: {excluded} (listed "
        f"above)."
        if excluded
        else f"Every pair that was compared agrees on everything but the framework{but}."
    ]
    return [*(_parameters(d) for d in a.digests), *lines]


def _parameters(d: DigestCheck) -> str:
    what = f"All cells of a block ended with bit-identical parameters at {ranks(d.world_size)}"
    if not d.groups:
        return f"{what}: not checked, no block holds two cells that did the same training."
    if d.mismatches:
        return (
            f"{what}: **NO**, {len(d.mismatches)} of {d.groups} groups differ: "
            f"{'; '.join(d.mismatches)}."
        )
    return f"{what}: yes, {count(d.groups, 'group')} of {count(d.runs, 'run')} checked."


def _provenance(host: Mapping[str, Any]) -> str:
    """What the widest run recorded about where it ran."""
    rows: list[list[str]] = [["machine", escape(machine(dict(host)))]]
    for part in ("versions", "git", "env"):
        found = host.get(part)
        if isinstance(found, dict) and found:
            rows.append([part, ", ".join(escape(f"{k} {v}") for k, v in found.items())])
    rows += [["platform", escape(str(host["platform"]))]] if "platform" in host else []
    return table(["of the run with most ranks", ""], rows)
