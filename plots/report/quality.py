"""The tables of what stands behind the numbers: logs, steps, gaps, nodes and what was set aside."""

from __future__ import annotations

from bench.study.comparability import NO_BLOCK
from plots.analyse.coverage import Gap
from plots.analyse.steady_state import Trend
from bench.study.logs import Unusable
from plots.report.columns import Column
from plots.report.format import code, ms, p_value, rate, ratio
from plots.report.tables import BATCH, POINT, plain_median, with_interval

RAW = (
    Column("log", "log"),
    Column("cell", "cell"),
    Column("world_size", "ranks"),
    Column("samples_per_rank", "images per rank"),
    Column("block", "block", lambda block: "-" if block == NO_BLOCK else str(block)),
    Column("images_per_s", "images/s", rate),
)


def _missing_blocks(gap: Gap) -> str:
    return ", ".join(map(str, gap.missing)) if len(gap.missing) < gap.planned else "all"


GAPS = (
    Column("curve", "curve"),
    *POINT,
    *BATCH,
    Column("planned", "launches planned", key="blocks_planned"),
    Column(lambda gap: gap.planned - len(gap.missing), "with usable runs"),
    Column("missing", key="blocks_missing"),
    Column(_missing_blocks, "missing"),
)


STEP_TIMES = (
    *POINT,
    *BATCH,
    Column("runs", "runs"),
    Column("steps_per_run", "steps per run"),
    Column("median_seconds", "median ms", plain_median(ms)),
    Column("p95_seconds", "p95 ms", plain_median(ms)),
    Column("p99_seconds", "p99 ms", plain_median(ms)),
)


def _trend(t: Trend) -> str:
    if t.over_first is None:
        return "too few steps to judge"
    return "still changes" if t.changes else "-"


TRENDS = (
    Column("cell", "cell"),
    Column("runs", "runs"),
    Column("judged_runs", "judged"),
    Column(
        lambda t: t.over_first and t.over_first.estimate,
        "last window over first [95 %]",
        with_interval(ratio),
        key="last_over_first",
    ),
    Column(lambda t: t.over_first and t.over_first.t_p, "p", p_value, key="p"),
    Column("changes"),
    Column(_trend, "flag", key=""),
)

NOT_COMPARED = (Column("pair", "pair", key="what"), Column("reason", "reason"))


def _why(log: Unusable) -> str:
    return "; ".join([log.reason, *(words for words in log.words if words not in log.reason)])


LOGS = (
    Column("log", "log", code),
    Column("state", "state"),
    Column("cell"),
    Column("reason"),
    Column("words"),
    Column(_why, "reason"),
)
