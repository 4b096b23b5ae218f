"""What a check says, from its measurements and the reference: sentences, JSON, JUnit, Bencher."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from bench.study.tolerance import Fall, fall
from slurm.check.reference import Reference, Sitting, shares

ARMS_LEVEL, DEVICES_LEVEL = 0.04, 0.01  # together one false alarm in 20 checks
EXIT_CODES = {"within": 0, "slower": 1, "could not measure": 3}


@dataclass(frozen=True, kw_only=True)
class Against:
    """One cell in all, or one of its ranks beside the others."""

    cell: str
    rank: int | None  # None: all of them
    host: str  # of the rank
    images_per_s: float
    change: Fall

    @property
    def title(self) -> str:
        return self.cell if self.rank is None else f"{self.cell} rank {self.rank} on {self.host}"

    @property
    def sentence(self) -> str:
        """'within: 35.7 images/s, 0.991 of the reference, not below 0.966'."""
        change = self.change
        of = "its share in the reference" if self.rank is not None else "the reference"
        side = "below" if change.relation == "slower" else "not below"
        noise = f"noise explains a fall of {100 * change.noise:.1f} %"
        said_of = f"{self.images_per_s:.4g} images/s, {change.ratio:.3f} of {of}"
        return f"{change.relation}: {said_of}, {side} {change.limit:.3f}; {noise}"


@dataclass(frozen=True)
class Answer:
    """The outcome of a check; without comparisons where nothing could be measured."""

    outcome: str  # a key of EXIT_CODES
    reason: str  # why it could not be measured; '' otherwise
    ranks: int
    comparisons: tuple[Against, ...] = ()
    notes: tuple[str, ...] = ()
    folder: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


def compare(reference: Reference, now: Sitting, tolerance: float | None) -> Iterator[Against]:
    """Each cell in all, and each rank's share of its cell's speed.

    Ranks that train in step end their steps together, so all are as slow as the slowest: a rank's
    own speed differs from the others' only where it does not wait for them.
    """
    cells = len(now.cells)
    for cell, measured in now.cells.items():
        speeds, count = measured.images_per_s, len(now.hosts)
        of_all = fall(speeds, reference.speeds(cell), ARMS_LEVEL / cells, tolerance)
        mean = of_all.ratio * of_all.reference
        yield Against(cell=cell, rank=None, host="", images_per_s=mean, change=of_all)
        for rank in range(count if count > 1 else 0):
            level = DEVICES_LEVEL / (cells * count)
            before = reference.shares(cell, rank)
            change = fall(shares(measured, rank), before, level, tolerance)
            rate = sum(rates[rank] for rates in measured.rank_images_per_s) / len(speeds)
            host = now.hosts[rank]
            yield Against(cell=cell, rank=rank, host=host, images_per_s=rate, change=change)


def outcome(comparisons: tuple[Against, ...]) -> tuple[str, str]:
    """Of all comparisons together, and why nothing can be said."""
    if any(one.change.relation == "slower" for one in comparisons):
        return "slower", ""
    # a rank's share can only name it: what its noise hides shows in all, as ranks train in step
    of_cells = [one for one in comparisons if one.rank is None]
    if unclear := next((one for one in of_cells if one.change.relation == "cannot tell"), None):
        noise = f"{100 * unclear.change.noise:.1f} %"
        cure = "measure more launches or sessions, on a quieter machine, or name a --tolerance"
        return "could not measure", f"noise of {noise} in {unclear.title} is too large; {cure}"
    return "within", ""


def _text(answer: Answer) -> str:
    lines = [
        f"{one.title}, {answer.ranks} ranks: {one.sentence}"
        for one in answer.comparisons
        if one.rank is None or one.change.relation == "slower"
    ]
    first = next((one.change for one in answer.comparisons), None)
    if first and not first.over_sessions:
        lines.append(
            "the reference has fewer than 3 sessions, so how much sessions differ is not known; "
            "add sessions with --write-reference"
        )
    lines += answer.notes
    where = f"; logs: {answer.folder}" if answer.folder else ""
    lines.append(f"{answer.outcome}{f': {answer.reason}' * bool(answer.reason)}{where}")
    return "\n".join(lines)


def _json(answer: Answer) -> str:
    rows = [asdict(one) for one in answer.comparisons]
    values = {**asdict(answer), "exit_code": answer.exit_code, "comparisons": rows}
    return json.dumps({"schema": 1, **values}, indent=1)


def _bencher(answer: Answer) -> str:
    """Bencher's metric format: benchmark, measure, value."""
    benchmarks: dict[str, Any] = {}
    for one in answer.comparisons:
        if one.rank is None:
            measures = {
                "images_per_s": one.images_per_s,
                "images_per_s_per_device": one.images_per_s / answer.ranks,
                "of_reference": one.change.ratio,
            }
            values = {name: {"value": value} for name, value in measures.items()}
            benchmarks[f"{one.cell} on {answer.ranks} ranks"] = values
    return json.dumps(benchmarks, indent=1)


def _junit(answer: Answer) -> str:
    """A test case for each comparison: slower is a failure, what could not be measured an error."""
    suite = ElementTree.Element("testsuite", name="check", tests="0")
    counts = {"failure": 0, "error": 0}

    def case(name: str, kind: str, message: str) -> None:
        made = ElementTree.SubElement(suite, "testcase", classname="check", name=name)
        if kind:
            counts[kind] += 1
            ElementTree.SubElement(made, kind, message=message)
        else:
            ElementTree.SubElement(made, "system-out").text = message

    kinds = {"within": "", "slower": "failure", "cannot tell": "error"}
    for one in answer.comparisons:
        relation = one.change.relation
        kind = kinds[relation] if one.rank is None or relation == "slower" else ""
        case(f"{one.title}, {answer.ranks} ranks", kind, one.sentence)
    if answer.reason and not counts["error"]:
        case("measurement", "error", answer.reason)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


FORMATS: Mapping[str, Callable[[Answer], str]] = {
    "text": _text,
    "json": _json,
    "junit": _junit,
    "bencher": _bencher,
}
