"""report.md: the answer first, then figures, tables and how each number is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel

from bench.study import stats
from bench.study.stats import Estimate
from plots.analyse import comparison
from plots.analyse.comparability import DigestCheck
from plots.analyse.points import NO_SETTINGS, Point, Table, describe, ranks
from plots.analyse.scaling import Scaled
from plots.analyse.study import Analysis, machine, workload
from plots.read.runs import Unusable
from plots.report import answer, calibration_tables
from plots.report.format import (
    count,
    escape,
    interval,
    ms,
    or_dash,
    p_value,
    percent,
    rate,
    ratio,
    table,
)

_MOST_ANSWERS = 8  # comparisons at the head of the page; all are in its tables
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
        answers=_answers(a),
        blocks=a.blocks,
        machine=escape(machine(raw.loaded.host)),
        workload=escape(workload(raw)),
        notes=[escape(note) for note in raw.notes],
        primary=any(c.primary for c in a.comparisons),
        figures=drawn,
        ratios=_ratios(a),
        checks=_checks(a),
        visible=comparison.VISIBLE_EFFECT,
        not_compared=a.not_compared,
        throughput=_throughput(a),
        waited=any(t.input_share is not None for t in a.throughput),
        apart=_apart(a),
        gains=_gains(a) if a.gains else "",
        pipelines=_pipelines(a) if a.pipelines else "",
        scaling=_scaling(a, a.efficiency),
        planned=len(a.planned) if loaded.study.blocks else 0,
        gaps=a.gaps,
        gaps_table=_gaps(a),
        calibrated=a.calibrated,
        calibration_tables=calibration_tables,
        calibration_findings=calibration_tables.findings(a.calibrated) if a.calibrated else [],
        calibration_unusable=calibration_tables.unusable(a.calibrated) if a.calibrated else "",
        same_nodes=_scaling(a, a.calibrated.scaling)
        if a.calibrated and a.calibrated.scaling
        else "",
        step_times=_step_times(a),
        not_steady=[
            f"`{escape(r['log'])}`: {escape(r['not_steady_reason'])}"
            for r in loaded.runs.to_dict("records")
            if not r["steady"]
        ],
        equal_work=_equal_work(a),
        usable=len(loaded.runs),
        loader_runs=len(loaded.pipelines),
        crashed=int((loaded.runs["exit_code"].fillna(0) != 0).sum()),
        unusable=loaded.unusable,
        superseded=loaded.superseded,
        unusable_table=_logs(loaded.unusable),
        superseded_table=_logs(loaded.superseded),
        provenance=_provenance(raw.loaded.host),
        min_blocks=stats.MIN_BLOCKS,
        percent=lambda x: f"{100 * x:g} %",
        count=count,
    )


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


def _settings(p: Point) -> str:
    return "-" if p.settings == NO_SETTINGS else p.settings


def _columns(a: Analysis) -> list[str]:
    """A study without variants has no column for them."""
    return ["variant"] if _varies(a) else []


def _varies(a: Analysis) -> bool:
    return any(p.variant for p in a.table.blocks)


def _variant(a: Analysis, variant: tuple[str, ...]) -> list[str]:
    return [", ".join(variant) or "-"] if _varies(a) else []


def _apart(a: Analysis) -> list[str]:
    """What a reader must know about numbers of runs that are reported apart."""
    facts = [
        f for blocks in a.table.blocks.values() for mean in blocks.values() for f in mean.facts
    ]
    lines = []
    if _varies(a):
        lines.append(
            "Variants are never mixed either: each is compared with itself alone, in rows and "
            "figures of its own."
        )
    if any(f.get("compile") == "True" for f in facts):
        lines.append(
            "`compile=True` takes away the overlap of Horovod's exchange with the backward pass."
        )
    if found := sorted({f["compression"] for f in facts if f.get("compression", "none") != "none"}):
        lines.append(
            f"`compression={'`, `'.join(found)}` rounds gradients on the way: one process rounds "
            f"nothing, so only its speed is a "
            "baseline."
        )
    return lines


def _gains(a: Analysis) -> str:
    head = [
        "cell",
        "settings",
        "ranks",
        "images per rank",
        "variant",
        "over",
        "images/s, ratio [95 %]",
        "n",
    ]
    rows = []
    for g in a.gains:
        where = [g.point.cell, _settings(g.point), g.point.world_size, g.point.samples_per_rank]
        rows.append(
            [
                *where,
                *(", ".join(p.variant) for p in (g.point, g.baseline)),
                interval(g.ratio, ratio),
                g.ratio.n,
            ]
        )
    return table(head, rows)


def _pipelines(a: Analysis) -> str:
    varies = any(p.variant for p in a.pipelines)
    head = [
        "data set",
        "images per batch",
        "data-loading processes",
        *(["variant"] if varies else []),
        "images/s [95 %]",
        "n",
        "runs",
    ]
    rows = []
    for p in a.pipelines:
        variant = [", ".join(p.variant) or "-"] if varies else []
        where = [p.dataset, p.samples_per_rank, p.num_workers, *variant]
        rows.append([*where, interval(p.images_per_s, rate), p.images_per_s.n, p.runs])
    return table(head, rows)


def _answers(a: Analysis) -> list[str]:
    lines = [
        f"**Equal work is in doubt:** at {ranks(d.world_size)} cells ended with different "
        f"parameters ({'; '.join(d.mismatches)})."
        for d in a.digests
        if d.mismatches
    ]
    lines += [
        f"**The environments are not equal:** {said}, as the site asks; every ratio marked so "
        f"compares these settings as well."
        for said in dict.fromkeys(u for c in a.comparisons for u in c.unequal)
    ]
    compared = answer.first(a)
    lines += (
        [f"**{answer.headline(a)}**"]
        if len(compared) > 1
        else []
        if compared
        else [answer.NOT_COMPARED]
    )
    lines += [f"**{answer.where(c)}:** {answer.said(c, a)}" for c in compared[:_MOST_ANSWERS]]
    lines += (
        [f"The other {count(len(compared) - _MOST_ANSWERS, 'comparison')}: see the table below."]
        if len(compared) > _MOST_ANSWERS
        else []
    )
    lines += (
        ["What the variants gain over the plainest one stands under [Variants](#variants)."]
        if a.gains
        else []
    )
    return lines + _scaling_answers(a)


def _scaling_answers(a: Analysis) -> list[str]:
    """One line per curve, variant, settings and batch: the largest point against the common
    baseline.
    """
    series: dict[tuple[str, tuple[str, ...], str, int], list[Scaled]] = {}
    for s in a.efficiency:
        if s.kind == "common":
            series.setdefault(
                (s.curve, s.point.variant, s.point.settings, s.point.fixed(s.curve)), []
            ).append(s)
    lines = []
    for (curve, variant, settings, fixed), rows in series.items():
        last = [s for s in rows if s.point.world_size == max(r.point.world_size for r in rows)]
        weak = curve == "weak"
        values = ", ".join(
            f"{s.point.cell} "
            f"{interval(s.efficiency, percent) if weak else interval(s.speedup, ratio)}"
            for s in last
        )
        batch = f"{fixed} images per {'rank' if weak else 'step'}"
        base = f"one plain process at {rate(last[0].baseline_images_per_s.value)} images/s"
        name = "Weak efficiency" if weak else "Strong speed-up"
        conditions = "; ".join([batch, settings, *variant])
        lines.append(
            f"{name} at {ranks(last[0].point.world_size)} against {base} ({conditions}): {values}."
        )
    return lines


def _ratios(a: Analysis) -> str:
    head = [
        "ranks",
        "images per rank",
        "transport",
        "settings",
        *_columns(a),
        "curves",
        "Horovod / DDP [95 %]",
        "90 % interval",
        "n",
        "verdict",
    ]
    rows = []
    for c in a.comparisons:
        ci90 = (
            "-"
            if c.paired.ci90 is None or not c.paired.estimate.shown
            else f"[{ratio(c.paired.ci90[0])}, {ratio(c.paired.ci90[1])}]"
        )
        said = comparison.sentence(c, a.loaded.study.margin, a.tests)
        where = [
            c.world_size,
            c.samples_per_rank,
            c.transport,
            c.settings,
            *_variant(a, c.variant),
            ", ".join(c.curves),
        ]
        rows.append(
            [
                *where,
                interval(c.paired.estimate, ratio),
                ci90,
                c.paired.n,
                f"primary: {said}" if c.primary else said,
            ]
        )
    return table(head, rows)


def _checks(a: Analysis) -> str:
    head = [
        "ranks",
        "images per rank",
        "transport",
        "settings",
        *_columns(a),
        "paired sd",
        "half-width",
        f"blocks for {100 * comparison.VISIBLE_EFFECT:g} %",
    ]
    head += ["t test p", "Holm p", "sign flip p", "Wilcoxon p"]
    rows = []
    for c in a.comparisons:
        noise = [c.paired.sd_log, c.half_width if c.paired.estimate.shown else None]
        price = c.blocks_for_visible_effect if c.paired.n > 1 else None
        p = [p_value(x) for x in (c.paired.t_p, c.holm_p, c.paired.signflip_p, c.paired.wilcoxon_p)]
        where = [c.world_size, c.samples_per_rank, c.transport, c.settings, *_variant(a, c.variant)]
        rows.append(
            [
                *where,
                *("-" if x is None else percent(x) for x in noise),
                or_dash(price),
                *map(or_dash, p),
            ]
        )
    return table(head, rows)


def _throughput(a: Analysis) -> str:
    waited = any(t.input_share is not None for t in a.throughput)
    head = [
        "curve",
        "cell",
        "settings",
        *_columns(a),
        "ranks",
        "images per rank",
        "images/s [95 %]",
        "step ms [95 %]",
    ]
    head += [*(["waiting for input"] if waited else []), "n", "runs", "flags"]
    rows = []
    for t in a.throughput:
        where = [
            t.curve,
            t.point.cell,
            _settings(t.point),
            *_variant(a, t.point.variant),
            t.point.world_size,
        ]
        values = [
            t.point.samples_per_rank,
            interval(t.images_per_s, rate),
            interval(t.step_seconds, ms),
        ]
        values += ["-" if t.input_share is None else percent(t.input_share)] if waited else []
        rows.append([*where, *values, t.images_per_s.n, t.runs, "; ".join(t.flags) or "-"])
    return table(head, rows)


def _scaling(a: Analysis, scaled: Sequence[Scaled]) -> str:
    head = [
        "curve",
        "cell",
        "settings",
        *_columns(a),
        "ranks",
        "baseline",
        "baseline images/s",
        "speed-up [95 %]",
    ]
    head += ["efficiency [95 %]", "step overhead ms", "n", "flags"]
    rows = []
    for s in scaled:
        where = [
            s.curve,
            s.point.cell,
            _settings(s.point),
            *_variant(a, s.point.variant),
            s.point.world_size,
        ]
        base = f"{s.kind}: {describe(s.baseline)}"
        overhead = (
            "-" if s.step_overhead_seconds is None else f"{1000 * s.step_overhead_seconds:+,.1f}"
        )
        values = [
            interval(s.speedup, ratio),
            interval(s.efficiency, percent),
            overhead,
            s.efficiency.n,
        ]
        rows.append(
            [
                *where,
                base,
                interval(s.baseline_images_per_s, rate),
                *values,
                "; ".join(s.flags) or "-",
            ]
        )
    return table(head, rows)


def _gaps(a: Analysis) -> str:
    varies = any(g.point.variant for g in a.gaps)
    head = [
        "curve",
        "cell",
        "settings",
        *(["variant"] if varies else []),
        "ranks",
        "images per rank",
    ]
    head += ["blocks planned", "with usable runs", "missing blocks"]
    rows: list[list[object]] = []
    for g in a.gaps:
        missing = ", ".join(map(str, g.missing)) if len(g.missing) < g.planned else "all"
        variant = [", ".join(g.point.variant) or "-"] if varies else []
        where = [
            g.curve,
            g.point.cell,
            _settings(g.point),
            *variant,
            g.point.world_size,
            g.point.samples_per_rank,
        ]
        rows.append([*where, g.planned, g.planned - len(g.missing), missing])
    return table(head, rows)


def _step_times(a: Analysis) -> str:
    head = [
        "cell",
        "settings",
        *_columns(a),
        "ranks",
        "images per rank",
        "runs",
        "steps per run",
        "median ms",
        "p95 ms",
        "p99 ms",
        "outliers",
        "not steady",
    ]
    rows = []
    for s in a.step_times:
        where = [
            s.point.cell,
            _settings(s.point),
            *_variant(a, s.point.variant),
            s.point.world_size,
        ]
        where += [s.point.samples_per_rank, s.runs, s.steps_per_run]
        rows.append(
            [
                *where,
                *map(_median, (s.median_seconds, s.p95_seconds, s.p99_seconds)),
                s.outlier_steps,
                s.not_steady_runs,
            ]
        )
    return table(head, rows)


def _median(e: Estimate) -> str:
    return ms(e.value) if e.low is None or e.high is None else interval(e, ms)


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


def _logs(logs: Sequence[Unusable]) -> str:
    return table(["log", "state", "reason"], [[f"`{u.log}`", u.state, _why(u)] for u in logs])


def _why(log: Unusable) -> str:
    lines = [log.reason, *(words for words in log.words if words not in log.reason)]
    return "<br>".join(lines)


def _provenance(host: Mapping[str, Any]) -> str:
    """What the widest run recorded about where it ran."""
    rows: list[list[str]] = [["machine", escape(machine(dict(host)))]]
    for part in ("versions", "git", "env"):
        found = host.get(part)
        if isinstance(found, dict) and found:
            rows.append([part, ", ".join(escape(f"{k} {v}") for k, v in found.items())])
    rows += [["platform", escape(str(host["platform"]))]] if "platform" in host else []
    return table(["of the run with most ranks", ""], rows)
