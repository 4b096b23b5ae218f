"""Comparisons of two cells in one arm, or of two arms of one cell, paired by launch.

A cell is a backend with its transport, an arm a condition, and a launch one pass over all points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.backends.catalogue import cells, parts
from bench.study import comparability, stats
from bench.study.comparability import LaunchId
from bench.study.definition import Point, Study, pairs
from bench.study.points import CURVES, NotCompared, Table, describe
from bench.study.stats import Decision, Estimate, Paired

# sd of a log ratio between sessions, of this project's own: real training, and emulated
TAU = 0.02
TAU_EMULATED = 0.005


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Candidate's images/s over the reference's at one size; above 1, the candidate is faster."""

    reference_point: Point
    candidate_point: Point
    curves: tuple[str, ...]
    paired: Paired
    median_ratio: float  # of the runs' median steps, a check beside the ratio of totals
    first_steps: Paired | None  # a window's first step over its others, of one side over the other
    sessions: tuple[str, ...]  # of each launch
    emulated: bool  # whether compute slept
    margin: float
    primary: bool
    verdict: Decision
    decides: bool  # whether the study plans launches enough for a verdict, or has them
    needs: int  # launches at the first look
    level: float  # what the interval that decides misses: looks and others are in it
    another_day: tuple[float, float] | None  # where the ratio may be then
    max_launches: int  # launches at the last look
    launches_to_settle: int | None  # launches in all; None: settled, not known, out of reach
    chance: float | None  # of a verdict at the last look, were ratio and noise the true ones

    @property
    def points(self) -> tuple[Point, Point]:
        """Reference and candidate."""
        return self.reference_point, self.candidate_point

    @property
    def reference(self) -> str:
        """The reference's cell."""
        return self.reference_point.cell

    @property
    def candidate(self) -> str:
        """The candidate's cell, which is a backend with its transport, as 'horovod/mpi'."""
        return self.candidate_point.cell

    @property
    def arm(self) -> str:
        """The candidate's arm, which is the reference's too unless `arms_differ`."""
        return self.candidate_point.arm

    @property
    def arms_differ(self) -> bool:
        """Whether two arms of a cell are compared, not two cells in one arm."""
        return self.reference_point.arm != self.candidate_point.arm

    @property
    def world_size(self) -> int:
        return self.candidate_point.world_size

    @property
    def batch_per_rank(self) -> int:
        return self.candidate_point.batch_per_rank

    @property
    def global_batch(self) -> int:
        return self.candidate_point.global_batch

    @property
    def transport(self) -> str:
        """The transport of both sides, or the two transports joined by ' and '."""
        both = (parts(cell).transport for cell in (self.reference, self.candidate))
        return " and ".join(dict.fromkeys(filter(None, both)))

    @property
    def unit(self) -> str:
        """The samples of the interval: 'sessions' if there are at least three, else 'launches'."""
        return "sessions" if len(set(self.sessions)) >= stats.SESSIONS else "launches"

    @property
    def estimate(self) -> Estimate:
        """The ratio with the interval at error rate `level`, from which the verdict follows."""
        return self.paired.estimate_at(self.level)

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval at `level`, relative: 0.01 is 1 %; None for one launch."""
        ends = self.paired.interval(self.level)
        return None if ends is None else math.sqrt(ends[1] / ends[0]) - 1

    @property
    def settled(self) -> bool:
        return self.verdict != "not settled"

    @property
    def equal(self) -> bool:
        return self.verdict == "equal"

    @property
    def skewed(self) -> bool:
        """Whether mean and median ratio differ beyond the margin; False below MIN_LAUNCHES."""
        off = abs(math.log(self.median_ratio / self.paired.ratio))
        return self.paired.n >= stats.MIN_LAUNCHES and off > math.log1p(self.margin)


class _Pair(NamedTuple):
    """Two points, the launches in which they did equal work, and their ratio."""

    a: Point
    b: Point
    launches: Sequence[LaunchId]
    paired: Paired
    curves: tuple[str, ...]


def compare(table: Table, study: Study, missing: list[NotCompared]) -> list[Comparison]:
    """Compare each pair of points by launch; append what cannot be compared to `missing`.

    The primary comparison errs at rate ALPHA over all looks, the numbers of launches at which the
    study decides. All other comparisons together err at ALPHA too: those with at least MIN_LAUNCHES
    share it equally (Bonferroni). Holm's steps would give more false 'equal'.
    """
    rows: list[_Pair] = []
    for a, b in _pairs(table, study):
        pair = f"{describe(a)} against {b.arm if a.cell == b.cell else b.cell}"
        if lacking := [p for p in (a, b) if p not in table.launches]:
            missing.append(NotCompared(pair, f"no usable run of {lacking[0].cell}", lacking[0]))
        elif launches := table.shared(a, b, may_differ(study, a, b), pair, missing):
            through = table.curves[a] | table.curves[b]
            curves = tuple(curve for curve in CURVES if curve in through)
            paired = table.paired(a, b, launches, swapped=True)
            rows.append(_Pair(a, b, launches, paired, curves))
    primary = _primary(table, rows, study)
    others = sum(r is not primary and r.paired.n >= stats.MIN_LAUNCHES for r in rows)
    levels = {True: stats.ALPHA, False: stats.ALPHA / max(1, others)}
    nominal = {first: stats.nominal_level(study.looks, level) for first, level in levels.items()}
    return [_comparison(table, r, study, nominal[r is primary], r is primary) for r in rows]


def _pairs(table: Table, study: Study) -> list[tuple[Point, Point]]:
    """Return the (reference, candidate) points to compare; one of the two may have no run."""
    compared = set()
    for a, b in pairs(sorted({p.cell for p in table.launches}), study.reference, study.candidate):
        for point in (p for p in table.launches if p.cell in (a, b)):
            over = study.over(point.arm) if a == b else point.arm
            both = {*study.arms_of(a)} & {*study.arms_of(b)}
            if over is not None and (not study.arms or {over, point.arm} <= both):
                compared.add((point._replace(cell=a, arm=over), point._replace(cell=b)))
    return sorted(compared)


def may_differ(study: Study, a: Point, b: Point) -> set[str]:
    """Return names of facts, or prefixes, that may differ: those of backends' options and code.

    Points of two arms may also differ in bucket sizes, and in the arms' fields except `emulate`.
    """
    if a.arm == b.arm:
        return {*comparability.OF_A_SIDE}
    fields = {field for name in (a.arm, b.arm) for field in study.arms[name].fields}
    return {*comparability.OF_A_SIDE, *comparability.BUCKETS, *fields} - {comparability.EMULATE}


def _primary(table: Table, rows: Sequence[_Pair], study: Study) -> _Pair | None:
    """Return the row that the study's `primary` names, or None unless exactly one row matches.

    Without `primary`, return the first row in this order: default settings of the exchange, most
    ranks, first transport, first curve, first arm, largest batch.
    """
    if (primary := study.primary) is not None:
        fields = primary.model_dump(exclude={"curve"}, exclude_none=True)
        named = [
            row
            for row in rows
            if primary.curve in row.curves
            and all(getattr(row.b, name) == value for name, value in fields.items())
        ]
        return named[0] if len(named) == 1 else None
    transports = [parts(cell).transport for cell in (*study.cells, *cells())]
    arms = [*study.arms]

    def order(row: _Pair) -> tuple[object, ...]:
        work = table.work(row.b)
        usual = all(work.get(k) in (None, comparability.usual(k)) for k in comparability.EXCHANGE)
        first = transports.index(row.b.transport)
        arm = arms.index(row.b.arm) if row.b.arm in arms else len(arms)
        curve = CURVES.index(row.curves[0])
        return not usual, -row.b.world_size, first, curve, arm, -row.b.batch_per_rank

    return min(rows, key=order, default=None)


def _comparison(table: Table, row: _Pair, study: Study, level: float, primary: bool) -> Comparison:
    """Make a row's comparison: its verdict at error rate `level`, and the launches still needed."""
    a, b, launches, paired, curves = row
    sessions = tuple(table.launches[a][launch].session for launch in launches)
    first_steps = table.paired(b, a, launches, of="first_step_over_rest")
    needs = study.looks[0] if study.looks else stats.MIN_LAUNCHES
    paired = stats.over_sessions(paired, sessions)
    ends, enough = paired.interval(level), paired.n >= needs
    verdict: Decision = stats.decide(ends, study.margin) if ends and enough else "not settled"
    may_settle = verdict == "not settled" and paired.n >= stats.MIN_LAUNCHES
    last = max(study.max_launches, paired.n)
    facts = (*table.facts(a, launches), *table.facts(b, launches))
    emulated = any(map(comparability.is_emulated, facts))
    return Comparison(
        reference_point=a,
        candidate_point=b,
        curves=curves,
        paired=paired,
        median_ratio=table.paired(a, b, launches, of="median_seconds").ratio,
        first_steps=None if math.isnan(first_steps.ratio) else first_steps,
        sessions=sessions,
        emulated=emulated,
        margin=study.margin,
        primary=primary,
        verdict=verdict,
        level=level,
        needs=needs,
        max_launches=study.max_launches,
        another_day=another_day(paired, sessions, level, emulated=emulated),
        decides=not 0 < study.launches < stats.MIN_LAUNCHES or enough,
        launches_to_settle=stats.launches_to_settle(paired, study.margin, level)
        if may_settle
        else None,
        chance=stats.chance(paired, study.margin, last, level) if may_settle else None,
    )


def another_day(
    paired: Paired, sessions: Sequence[str], level: float, *, emulated: bool
) -> tuple[float, float] | None:
    """Predict an interval for the ratio in another session; None if `paired` has no interval.

    `sessions` names each launch's session. From three sessions on, `paired` must be over sessions,
    and the result is Student's prediction interval at error rate `level`. With fewer, the ratio's
    interval is widened by an assumed deviation between sessions: TAU; if `emulated`, TAU_EMULATED.
    """
    ends = paired.interval(level)
    if ends is None or paired.error_log is None:
        return None
    if (k := len(set(sessions))) >= stats.SESSIONS:
        half = stats.quantile(level, k - 1) * paired.error_log * math.sqrt(k + 1)
    else:
        tau = TAU_EMULATED if emulated else TAU
        half = math.hypot(math.log(ends[1] / ends[0]) / 2, math.sqrt(2) * 1.96 * tau)
    return paired.ratio * math.exp(-half), paired.ratio * math.exp(half)


def ratios_by_session(paired: Paired, sessions: Sequence[str]) -> Iterator[tuple[str, Estimate]]:
    """Yield each session and the geometric mean of the ratios of its launches."""
    for session in dict.fromkeys(sessions):
        ratios = zip(sessions, paired.ratios, strict=True)
        yield session, stats.geometric_mean([ratio for name, ratio in ratios if name == session])
