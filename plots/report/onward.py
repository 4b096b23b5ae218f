"""What to do next: one way, with its command, its price and the chance that it settles."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from bench.study.folder import RESULTS
from bench.study.power import POWER
from bench.study.stats import SESSIONS
from bench.study.verdict import Comparison
from plots.analyse.study import Analysis
from plots.report.format import Markdown, clean, count
from plots.report.verdicts import prospect

_STUDIES = Path(__file__).parents[2] / "slurm" / "studies"


def onward(a: Analysis) -> Markdown:
    """Write two sentences on the primary comparison; '' where nothing is compared."""
    return Markdown(_onward(a))


def _onward(a: Analysis) -> str:
    c = a.primary
    if c is None or not c.decides:
        return ""
    verb = "submit" if a.loaded.runs["allocation"].str.startswith("job ").any() else "run"
    command = f"`python -m slurm {verb} {_study(a)}"
    n, left = c.paired.n, c.max_blocks - c.paired.n
    if c.settled:
        return _another_day(a, c, command, left)
    if n < c.needs:
        first = f"{command}` does the {count(c.needs - n, 'launch')} that the first look lacks"
        return f"{first}{_price(a, c.needs - n)}. What they settle nobody can tell yet."
    if left > 0:
        more = f"{command}` goes on until it is settled, {count(left, 'launch')} at most"
        return f"{more}{_price(a, left)}. {prospect(c)}."
    if c.blocks_to_settle is None:
        return f"A larger study does not help. {prospect(c)}."
    new = f"a study of another name with `blocks` and `max_blocks` at {c.blocks_to_settle:,}"
    chance = f"It settles with a chance of {100 * POWER:.0f} %, were ratio and noise the true ones"
    return f"All planned launches are done. Plan {new}{_price(a, c.blocks_to_settle)}. {chance}."


def _study(a: Analysis) -> str:
    """Name what the command takes: a shipped study by its name, or by its folder where it is among
    the results alone; else the folder that `python -m slurm` uses by default. A page is the same
    wherever it is made.
    """
    name = a.loaded.study.name
    where = f"{RESULTS}/{name}"
    if a.loaded.shipped:
        where = name if (_STUDIES / f"{name}.toml").exists() else f"results/{name}"
    return shlex.quote(clean(where)).replace("`", "'")


def _another_day(a: Analysis, c: Comparison, command: str, left: int) -> str:
    """Propose another day: an answer is of its sessions, and three tell how days differ."""
    if c.unit == "sessions":
        return "Nothing is open here. Other ranks, batches or machines are another study."
    if left <= 0:
        again = "measure it again under another name, and `python -m plots compare` both"
        return f"All planned launches are done. On another day, {again}."
    launches = min(a.loaded.study.blocks or c.needs, left)
    total = c.paired.n + launches
    day = f"On another day, {command} --blocks {total}` adds {count(launches, 'launch')}"
    why = f"from {SESSIONS} sessions on the interval is over their means"
    return f"{day}{_price(a, launches)}: {why}."


def _price(a: Analysis, launches: int) -> str:
    """Estimate ', about 6 min' from what a launch took from its first start to its last end."""
    runs = a.loaded.runs
    ends = (runs["began_s"] + runs["wall_s"]).groupby(runs["block"]).max()
    spans = (ends - runs.groupby("block")["began_s"].min()).dropna()
    if spans.empty or not math.isfinite(seconds := float(spans.median()) * launches):
        return ""
    minutes = seconds / 60
    return f", about {minutes:.0f} min" if minutes >= 1.5 else f", about {seconds:.0f} s"
