"""report.html: the answer first, one file, nothing of a log becomes a tag, seen in a browser."""

from __future__ import annotations

import csv
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from plots.__main__ import main
from tests import browser
from tests.plots import logs

ROOT = Path(__file__).parents[2]
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Tags with their attributes, text by id of the innermost element that has one, open tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title", "script"):
            self.text += data


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = logs.study(tmp_path_factory.mktemp("results") / "test", blocks=6)
    logs.study_toml(folder, blocks=6)
    assert main(["report", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def page(study: Path) -> Page:
    return Page((study / "report.html").read_text())


def test_the_first_words_are_the_verdict_its_size_its_uncertainty_and_the_machine(
    study: Path, page: Page
) -> None:
    summary = json.loads((study / "summary.json").read_text())
    first = max(summary["comparisons"], key=lambda c: c["world_size"])
    plain = re.search(r"DDP is [\d.]+ % faster than Horovod on 2 ranks over MPI [^\n]+", page.text)
    assert plain, page.text[:300]
    verdict = re.search(r"DDP faster: [^\n]+ margin 2 %[^\n]+", page.text)
    assert verdict
    assert plain.start() < verdict.start()
    low, high = first["interval"]
    assert first["verdict_text"] in verdict[0]
    assert f"Horovod / DDP = {first['ratio']:.3f} [{low:.3f}, {high:.3f}]" in verdict[0]
    assert "6 launches, margin 2 %" in verdict[0]
    assert page.text.index("Test CPU @ 2 GHz") < page.text.index("Answer")


def test_three_numbers_stand_beside_it(study: Path, page: Page) -> None:
    values = json.loads((study / "summary.json").read_text())
    head = page.text[: page.text.index("Answer")]
    for name in ("Throughput, images/s", "Weak efficiency", "Exposed communication, ms"):
        assert name in head
    rates = {
        t["cell"]: t["images_per_s"]["value"]
        for t in values["throughput"]
        if t["world_size"] == 2 and t["samples_per_rank"] == 16
    }
    assert all(f"{cell}: {rate:.1f} [" in head for cell, rate in rates.items()), rates
    assert "not measured: see the study exposed" in head


def test_it_is_one_file_that_asks_for_nothing(page: Page) -> None:
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object"}
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}], (
        "its own, inside"
    )
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "data", "action"):
            value = attributes.get(name) or ""
            assert not value or value.startswith("#") or "//" not in value, (tag, value)
        assert not any(name.startswith("on") for name in attributes)
    assert page.open == [], "every tag is closed"


def test_every_figure_is_in_it_with_its_words(study: Path, page: Page) -> None:
    drawn = sorted(path.stem for path in (study / "figures").glob("*.svg"))
    figures = {str(a["id"]): a["aria-label"] for tag, a in page.tags if tag == "figure"}
    assert sorted(figures) == [f"figure-{name}" for name in drawn]
    assert all(len(words or "") > 20 for words in figures.values())
    assert "images/s of Horovod over images/s of DDP" in page.text, "text of an SVG is text"


def test_no_identifier_is_there_twice_and_none_is_missing(page: Page) -> None:
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    used = {
        value
        for _, attributes in page.tags
        for text in attributes.values()
        for value in re.findall(r"url\(#([^)]+)\)", text or "")
    } | {(a.get("xlink:href") or "#").lstrip("#") for _, a in page.tags}
    assert used - {""} <= set(ids)


def test_what_is_rarely_needed_is_folded(page: Page) -> None:
    folded = [a["id"] for tag, a in page.tags if tag == "details" and "id" in a]
    assert folded == [
        "checks-beside-the-verdicts",
        "step-times",
        "raw-logs",
        "how-each-number-is-made",
    ]


def test_the_same_logs_give_the_same_bytes(study: Path, tmp_path: Path) -> None:
    again = tmp_path / "test"
    shutil.copytree(study, again)
    assert main(["report", str(again)]) == 0
    names = ["report.html", *(f"figures/{p.name}" for p in (study / "figures").iterdir())]
    for name in names:
        assert (again / name).read_bytes() == (study / name).read_bytes(), name


def check_harmless(text: str) -> None:
    """No text of a log or a study has become a tag, an attribute or a control character."""
    found = Page(text)
    assert found.open == []
    assert not any(tag == "img" for tag, _ in found.tags)
    assert [tag for tag, _ in found.tags].count("script") <= 1, "the page's own"
    assert not any("javascript" in (a.get("href") or "") for _, a in found.tags)
    assert not any(name.startswith("on") for _, a in found.tags for name in a)
    assert "\x1b" not in text


# what the browser is asked when it has laid the page out
PROBE = """
const box = e => {
  const r = e.getBoundingClientRect();
  return [r.left, r.top, r.right, r.bottom];
};
const found = {
  width: document.documentElement.scrollWidth, shown: window.innerWidth,
  verdict: box(document.getElementById("verdict")),
  machine: box(document.getElementById("machine")),
  numbers: box(document.getElementById("numbers")), figure: box(document.querySelector("figure")),
  blocks: [...document.querySelectorAll("main > *, .first > *, .numbers > div")].map(box),
  texts: [...document.querySelectorAll("figure svg")].flatMap(svg => {
    const frame = box(svg);
    return [...svg.querySelectorAll("text")].map(box).filter(
      t => t[0] < frame[0] - 2 || t[2] > frame[2] + 2 || t[1] < frame[1] - 2 || t[3] > frame[3] + 2
    );
  }),
};
show(found);
"""


# a reader clicks: each head twice, then the button; what was copied is read where it was put
CLICKS = """
const table = document.querySelector("#throughput table");
const heads = [...table.tHead.rows[0].cells];
const column = heads.findIndex(h => h.textContent.startsWith("images/s"));
const values = () => [...table.tBodies[0].rows].map(r => r.cells[column].textContent);
const before = values();
heads[column].click(); const rising = values();
heads[column].click(); const falling = values();
let copied = "";
document.execCommand = () => { copied = document.activeElement.value; };
Object.defineProperty(navigator, "clipboard", { value: undefined });
table.nextSibling.click();
show({ before, rising, falling, copied });
"""


def seen(study: Path, folder: Path, width: int, probe: str = PROBE) -> dict[str, Any]:
    """Where a real browser puts things, in pixels of a window `width` wide."""
    path = folder / f"probe-{width}.html"
    path.write_text((study / "report.html").read_text())
    browser.add_script(path, probe)
    found: dict[str, Any] = browser.probed(path, f"--window-size={width},900")
    return found


def test_a_click_sorts_a_table_and_copies_it(study: Path, tmp_path: Path) -> None:
    found = seen(study, tmp_path, 1280, CLICKS)
    numbers = [
        [float(v.split()[0].replace(",", "")) for v in found[k]] for k in ("rising", "falling")
    ]
    assert sorted(found["before"]) == sorted(found["rising"]) == sorted(found["falling"])
    assert numbers[0] == sorted(numbers[0])
    assert numbers[1] == sorted(numbers[1], reverse=True)
    assert len({*numbers[0]}) > 1
    rows = list(csv.reader(found["copied"].splitlines()))
    assert "cell" in rows[0]
    assert len(rows) == 1 + len(found["before"])
    place = next(i for i, name in enumerate(rows[0]) if name.startswith("images/s"))
    assert [row[place] for row in rows[1:]] == found["falling"]


def test_a_pointer_on_a_mark_shows_its_value(study: Path, page: Page) -> None:
    summary = json.loads((study / "summary.json").read_text())
    first = summary["comparisons"][0]
    low, high = first["interval"]
    svg = (study / "figures" / "ratio.svg").read_text()
    titles = re.findall("<title>([^<]*)</title>", svg)
    assert f"{first['ratio']:.3f} [{low:.3f}, {high:.3f}], n = 6" in titles, "as the table has it"
    efficiency = (study / "figures" / "weak-efficiency.svg").read_text()
    assert re.search(r"<title>ddp/mpi: [\d.]+ % \[[\d.]+, [\d.]+\], n = 6</title>", efficiency)
    assert "value-" not in svg, "no identifier is left that holds a text"


@pytest.mark.parametrize("width", [1280, 820, 500])
def test_nothing_overlaps_or_is_cut_in_a_browser(study: Path, tmp_path: Path, width: int) -> None:
    found = seen(study, tmp_path, width)
    assert found["width"] <= found["shown"] + 1, "the page does not scroll sideways"
    assert found["texts"] == [], "every text of a figure lies inside of it"
    (_left, _top, right, bottom), numbers = found["figure"], found["numbers"]
    apart = numbers[0] >= right - 1 or numbers[1] >= bottom - 1
    assert apart, "the numbers stand beside the figure or below it"
    for a in found["blocks"]:
        assert a[0] >= -1
        assert a[2] <= found["shown"] + 1


SHIPPED = sorted(path.parent for path in (ROOT / "results").glob("[!m]*/report.html"))


@pytest.mark.parametrize("shipped", [None, *SHIPPED], ids=lambda path: path and path.name)
def test_the_answer_is_on_the_first_screen(
    study: Path, shipped: Path | None, tmp_path: Path
) -> None:
    found = seen(shipped or study, tmp_path, 1280)
    for name in ("verdict", "machine", "numbers", "figure"):
        assert found[name][3] <= 600 + (50 if name == "figure" else 0), (name, found[name])


def test_a_narrow_screen_shows_the_verdict_first(tmp_path: Path) -> None:
    logs.study_toml(logs.study(tmp_path))
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    table = page.split('id="horovod-against-ddp"')[1].split("</table>")[0]
    assert re.findall("<th>(.*?)</th>", table)[0] == "verdict"
    assert len(re.findall(r"<tr>\s*<td[^>]*>(?:primary: )?DDP faster: ", table)) == 3
