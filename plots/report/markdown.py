"""report.md, the answer first, and the details that report.html alone holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import BaseModel

from bench.backends.catalogue import label
from bench.study.stats import ALPHA, EXACT, MIN_BLOCKS
from plots.analyse.nodes import DRIFT_LIMIT, FLOOR, MAX_SCORE, MIN_NODES, MOST, Calibrated
from plots.analyse.points import NotCompared, Table, ranks
from plots.analyse.runs import Loaded
from plots.analyse.steady_state import ENOUGH_STEPS, ENOUGH_WINDOWS
from plots.analyse.study import Analysis, gloo_builds, machine, workload
from plots.report import answer, methods, quality, tables, verdicts
from plots.report.checks import checks, standing
from plots.report.columns import markdown_table
from plots.report.format import count, escape, every, interval, percent, ratio, rule, table
from plots.report.onward import onward
from plots.report.why import why

_SETTINGS = {
    "shipped": "each framework's own defaults",
    "matched": "equal bucket bytes, no buffers exchanged in a step",
    "tuned": "a knob of the framework set by hand",
}
_MOST_PAIRS = 1  # of one reason why they were not compared
_MOST_WHY = 1000  # characters of what stands behind a check
_MOST_LOGS = 500  # all are in runs.csv
_OF_A_LOG = ["log", "cell", "settings", "world_size", "samples_per_rank", "block", "images_per_s"]
_MOST_NODES = 24  # the slowest first; the rest are in the file


def markdown(analysis: Analysis, drawn: list[str]) -> tuple[str, str]:
    """The page, with `drawn` the names of the figures beside it, and its details."""
    environment = templates(keep_trailing_newline=True)
    environment.globals.update(answer=answer, tables=tables, quality=quality)
    environment.globals.update(calibration=calibration, ranks=ranks)
    environment.globals.update(table=markdown_table, count=count, every=every, rule=rule)
    runs, host, checked = analysis.loaded.runs, analysis.loaded.host, checks(analysis)
    not_steady = runs[runs["judged"] & ~runs["steady"].astype(bool)]
    reasons = zip(not_steady["log"], not_steady["not_steady_reason"], strict=True)
    means = [mean for blocks in analysis.table.blocks.values() for mean in blocks.values()]
    facts = [f for mean in means for f in mean.facts]
    a: Analysis = escaped(analysis)
    reference, candidate = verdicts.sides(a.reference, a.candidate)
    context: dict[str, Any] = {
        "a": a,
        "study": a.loaded.study,
        "settings": _meanings({*runs.loc[runs["cell"] != "single", "settings"]}),
        "title": " against ".join(label(cell) for cell in (a.candidate, a.reference)),
        "reference": reference,
        "candidate": candidate,
        "opening": answer.opening(a),
        "mark": " (emulated)" if analysis.emulated() else "",
        "machine": escape(machine(host)),
        "workload": escape(workload(analysis)),
        "gloo": escape(gloo_builds(analysis)),
        "standing": escape(standing(checked)),
        "why": why(analysis),
        "next": onward(analysis),
        "checked": [replace(c, name=escape(c.name), why=escape(c.why, _MOST_WHY)) for c in checked],
        "notes": [escape(note if note.endswith(".") else f"{note}.") for note in analysis.notes],
        "figures": drawn,
        "not_steady": [f"`{escape(log)}`: {escape(reason)}" for log, reason in reasons],
        "logs": [escaped(row) for row in runs[_OF_A_LOG].itertuples(index=False)],
        "most_logs": _MOST_LOGS,
        "crashed": int((runs["exit_code"].fillna(0) != 0).sum()),
        "provenance": _provenance(analysis.loaded),
        "methods": methods.paragraph(a),
        "limits": [escape(limit) for limit in methods.limits(analysis)],
        "not_compared": list(_by_reason(a.not_compared)),
        "compiled": any(f.get("compile") == "True" for f in facts),
        "compressed": sorted({f.get("compression", "none") for f in facts} - {"none"}),
        "min_blocks": MIN_BLOCKS,
        "exact": EXACT,
        "primary": a.primary,
        "most_nodes": _MOST_NODES,
        "enough": (ENOUGH_STEPS, ENOUGH_WINDOWS),
    }
    names = ("page.md.j2", "details.md.j2")
    page, details = (environment.get_template(name).render(context) for name in names)
    return page, details


def templates(**options: bool) -> Environment:
    """What the pages are rendered by: the files beside this module."""
    loader = FileSystemLoader(Path(__file__).parent)
    blank: Any = {"trim_blocks": True, "lstrip_blocks": True, **options}
    return Environment(loader=loader, undefined=StrictUndefined, **blank)


def escaped(x: Any) -> Any:
    """A copy in which every text is escaped: logs, studies and sites were written by anybody.

    Frames and the table of points stay as they are: nothing is printed from them unescaped.
    """
    match x:
        case str():
            return escape(x)
        case Table():
            return x
        case BaseModel():
            names = type(x).model_fields
            return x.model_copy(update={name: escaped(getattr(x, name)) for name in names})
        case Mapping():
            return {escaped(k): escaped(v) for k, v in x.items()}
        case tuple() if hasattr(x, "_fields"):
            return type(x)(*map(escaped, x))
        case tuple() | list():
            return type(x)(map(escaped, x))
        case _ if is_dataclass(x) and not isinstance(x, type):
            return replace(x, **{f.name: escaped(getattr(x, f.name)) for f in fields(x)})
        case _:
            return x


def _meanings(settings: Collection[str]) -> str:
    return "; ".join(f"`{name}`: {text}" for name, text in _SETTINGS.items() if name in settings)


def _by_reason(missing: Iterable[NotCompared]) -> Iterator[str]:
    """A line for each reason with the first pairs that it holds for; the details have them all."""
    pairs: dict[str, list[str]] = defaultdict(list)
    for item in missing:
        pairs[item.reason].append(item.pair)
    for reason, texts in pairs.items():
        more = len(texts) - _MOST_PAIRS
        yield f"{'; '.join(texts[:_MOST_PAIRS])}{f'; and {more} more' * (more > 0)}: {reason}"


def _provenance(loaded: Loaded) -> str:
    """What the runs recorded about where they ran; a value that not all have, with their number."""
    rows = [["machine", escape(machine(loaded.host))]]
    recorded = loaded.runs["recorded"].tolist()
    for part in ("versions", "git", "env", "platform"):
        names = sorted({name for one in recorded for name in one if name.startswith(part)})
        values = [f"{name.partition('.')[2]} {_by_runs(name, recorded)}".strip() for name in names]
        rows += [[part, ", ".join(map(escape, values))]] if values else []
    return table([f"of {count(len(recorded), 'usable run')}", ""], rows)


def _by_runs(name: str, recorded: Sequence[Mapping[str, str]]) -> str:
    values = Counter(one.get(name, "unset") for one in recorded)
    if len(values) == 1:
        return next(iter(values))
    return " or ".join(f"{value} ({count(n, 'run')})" for value, n in values.most_common())


def calibration(c: Calibrated) -> list[str]:
    """First things first; each rule stands beside what it found."""
    bad = sum(not one.usable for one in c.all)
    usable = f"usable: {count(len(c.all) - bad, 'calibration')}"
    return [_slow(c), *_drift(c), usable + (f", **{bad} failed or are missing**." if bad else ".")]


def _slow(c: Calibrated) -> str:
    rules = (
        f"slow is a node whose median is more than {percent(FLOOR)} below the median node, as is "
        f"{rule(MOST)} of its calibrations, with a modified z-score below -{MAX_SCORE} (Iglewicz & "
        f"Hoaglin 1993); judged from {MIN_NODES} nodes on, each batch apart"
    )
    sizes = Counter(n.samples_per_step for n in c.nodes)
    judged = {n.unit for n in c.nodes if sizes[n.samples_per_step] >= MIN_NODES}
    rest = len({n.unit for n in c.nodes} - judged)
    of = f"{len(judged)}, {rest} not judged" if judged and rest else f"{len(judged)}"
    if not c.slow:
        return f"Slow nodes: {f'none of {of}' if judged else f'not judged of {rest}'} ({rules})."
    slow = [f"`{n.unit}` at {percent(n.relative)} of the median node" for n in c.nodes if n.slow]
    exclude = f"--exclude={','.join(c.slow)}"
    cure = f'an option of sbatch, or `extra = ["{exclude}"]` under [access] of the site'
    finding = f"**Slow nodes: {len(c.slow)} of {of}**: {'; '.join(slow)} ({rules})."
    return f"{finding} Keep them out with `{exclude}`: {cure}."


def _drift(c: Calibrated) -> list[str]:
    if c.drift is None:
        known = "no node has a usable calibration at the start and at the end of one job"
        return [f"Drift: not known, {known}."]
    finding = (
        f"Drift inside jobs, images/s at the end over the start: {interval(c.drift, ratio)}, n = "
        f"{c.drift.n} jobs (warned of beyond {percent(DRIFT_LIMIT)} where the interval excludes 1)."
    )
    if c.drifts:
        cause = "Runs late in a block met other conditions; their order is random, so this is noise"
        finding = f"**Warning:** {finding} {cause}."
    warned = [f"{d.allocation}: `{d.most_node}` {ratio(d.most_ratio)}" for d in c.jobs if d.warn]
    jobs = f"{len(warned)} of {len(c.jobs)} jobs a node changed by more than {percent(FLOOR)}"
    jobs += f", beyond the noise of the others (level {percent(ALPHA)} for each job)"
    return [finding] + ([f"**Warning:** in {jobs}: {'; '.join(warned)}."] if warned else [])
