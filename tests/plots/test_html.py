"""report.html: the answer first, one file, nothing of a log becomes a tag, seen in a browser."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from pathlib import Path

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
    folder = logs.study(tmp_path_factory.mktemp("results") / "test", launches=6)
    logs.study_toml(folder, launches=6)
    assert main(["report", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def page(study: Path) -> Page:
    return Page((study / "report.html").read_text())


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


def test_the_answer_is_first_then_machine_ratio_and_scaling_as_large_as_shown(study: Path) -> None:
    text = (study / "report.html").read_text()
    (answer,) = re.findall(r'<p class="answer">(.*?)</p>', text)
    assert text.count(answer) == 1, "a fact stands once"
    order = ['class="answer"', 'class="machine"', '"figure-ratio"', '"figure-scaling"', "<table>"]
    assert sorted(order, key=text.index) == order
    widths = {round(float(w) / 72, 3) for w in re.findall(r'<svg [^>]*?width="([\d.]+)pt"', text)}
    assert widths == {3.5}, "of a phone; wider pages show it larger"
    letters = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", text)}
    assert min(letters) >= 9, "points"


def check_harmless(text: str) -> None:
    """Check that no text of a log or a study is a tag, an attribute or a control character."""
    found = Page(text)
    assert found.open == []
    assert not any(tag == "img" for tag, _ in found.tags)
    assert [tag for tag, _ in found.tags].count("script") <= 1, "the page's own"
    assert not any("javascript" in (a.get("href") or "") for _, a in found.tags)
    assert not any(name.startswith("on") for _, a in found.tags for name in a)
    assert "\x1b" not in text


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


def test_a_click_sorts_a_table_and_copies_it(study: Path) -> None:
    found = browser.shown(study / "report.html", CLICKS)
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
