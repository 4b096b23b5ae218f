"""What a paper's methods section needs, and how far the numbers reach: sentences from the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bench.backends.catalogue import facts
from bench.record.events import machine_of
from bench.study import stats
from plots.analyse.comparability import TAKEN
from plots.analyse.points import ranks
from plots.analyse.study import Analysis, machine
from plots.report.answer import versus
from plots.report.format import Markdown, escape, rule
from plots.report.verdicts import exchanges_nothing


def paragraph(a: Analysis) -> Markdown:
    """Describe how the numbers were made, in one paragraph that an author can cite."""
    study = a.loaded.study
    order = "Runs were launched in random order."
    if a.loaded.fixed:  # logs that carry their study were made by pairs
        order = "Both sides of a comparison were launched next to each other, each first in half."
    if (a.loaded.runs["turns"] == TAKEN).all():
        order = (
            "In a launch both sides of a comparison live at the same time and work by turns, "
            "window by window (duet benchmarking: Bulej et al. 2020); each begins in half of them."
        )
        if (lead_in := _span(a, "lead_in_steps")) != "0":
            order += (
                f" Each turn begins with {lead_in} step{'s' * (lead_in != '1')} outside the clock."
            )
    over_sessions = any(c.unit == "sessions" for c in a.comparisons)
    by_session = ", averaged in each session and then over sessions" if over_sessions else ""
    looks = f"{study.looks[0]} to {study.looks[-1]} launches" if study.looks else "no launch"
    return Markdown(
        f"{escape(versus(a))}, trained by one loop that does not know its framework. In a run "
        f"{_span(a, 'warmup_steps')} warm-up steps are cut and {_span(a, 'steps')} steps are timed "
        f"in {_span(a, 'windows')} windows; images/s are all their images over the windows' "
        f"seconds on the slowest rank. {order} A ratio is the geometric mean of the "
        f"launches' paired ratios{by_session}; one Student t interval on their logarithms decides: "
        f"*equal* inside the margin of {rule(study.margin)}, *faster* outside of 1, else *not "
        f"settled*. It errs in 5 % over all looks ({looks}) at the primary comparison, and in 5 % "
        f"at all others together. Efficiency is T(1)/T(p) against one plain process."
    )


def limits(a: Analysis) -> Iterator[str]:
    """Tell what the numbers do not say."""
    worlds = sorted(set(a.loaded.runs["world_size"]))
    sizes = " and ".join(filter(None, (", ".join(map(str, worlds[:-1])), ranks(worlds[-1]))))
    yield f"Measured at {sizes} on {machine(a.loaded.host)}; other sizes and machines differ."
    places = a.loaded.host.get("ranks", ())
    hosts = {rank["hostname"] for rank in places}
    machines = Counter(map(machine_of, places))
    if singles := [c for c in a.comparisons if exchanges_nothing(c)]:
        rows = [facts(cell) for c in singles for cell in (c.reference, c.candidate)]
        work = dict.fromkeys(f"{r.short_label} {r.on_one_rank}" for r in rows if r.on_one_rank)
        words = f": there {'; '.join(work)}" if work else ""
        yield f"On 1 rank nothing is exchanged{words}. It says nothing of more ranks."
    if len(hosts) == 1 and len(places) > 1:
        yield "All ranks shared one node: no network between nodes was crossed."
    if len(machines) < len(hosts):
        one = f"{len(machines)} machine{'s' * (len(machines) > 1)}"
        yield f"The {len(hosts)} nodes were on {one}, whose cores and memory they shared."
    cores = min((rank["cpus_on_node"] for rank in places if rank.get("cpus_on_node")), default=0)
    threads = max((rank.get("threads", 1) for rank in places), default=1)
    if cores and max(machines.values()) * threads >= cores and not a.emulated():
        yield "The ranks filled the cores: exchange and compute competed for them."
    if a.timelines:
        yield "Compute was slept, not computed: only exchange, hooks and optimiser step are real."
    if {one.get("device") for one in a.loaded.runs["facts"]} == {"cpu"}:
        yield "Tensors were on CPUs: nothing is said of GPUs and NCCL."
    if a.blocks < stats.MIN_BLOCKS:
        yield f"Fewer than {stats.MIN_BLOCKS} launches: no interval, no verdict."


def _span(a: Analysis, column: str) -> str:
    """Write a column's value, or the range from its least to its largest."""
    values = a.loaded.runs[column]
    return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in (values.min(), values.max())))
