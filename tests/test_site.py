"""The website of the pages and reports: no dead link, and clicked through in a real browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests import browser
from tests.plots.test_html import CLICKS, Page, check_sorted_and_copied

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make site` makes it."""
    out, cache = (str(tmp_path_factory.mktemp(name)) for name in ("site", "doctrees"))
    options = ["-q", "--fail-on-warning", "--conf-dir", "tests/site", "--doctree-dir", cache]
    command = [sys.executable, "-m", "sphinx", *options, ".", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return Path(out)


@pytest.fixture
def clicked(site: Path, tmp_path: Path) -> Path:
    """A copy, into whose pages a test writes what its reader clicks."""
    return shutil.copytree(site, tmp_path / "site")


def test_every_link_leads_to_a_file_and_to_a_place_in_it(site: Path) -> None:
    tags = {path: Page(path.read_text()).tags for path in site.rglob("*.html")}
    places = {path: {a.get("id") for _, a in tags[path]} for path in tags}
    links = [
        (page, urlsplit(value))
        for page in tags
        for _, attributes in tags[page]
        for name in ("href", "src")
        if (value := attributes.get(name))
    ]
    inside = [(page, url) for page, url in links if not url.scheme]
    assert len(inside) > 1000
    for page, url in inside:
        target = (page.parent / unquote(url.path)).resolve() if url.path else page
        assert target.is_file(), (page, url)
        assert target not in places or not url.fragment or url.fragment in places[target], url


def test_every_shipped_report_is_in_it_as_it_is(site: Path) -> None:
    shipped = [path.parent for path in (ROOT / "results").glob("*/SHIPPED")]
    assert len(shipped) > 15
    for study in shipped:
        page = site / study.relative_to(ROOT) / "report.html"
        assert page.read_bytes() == (study / "report.html").read_bytes()
        assert f'href="results/{study.name}/report.html"' in (site / "index.html").read_text()


def test_a_reader_clicks_from_the_first_page_to_a_table_and_sorts_it(clicked: Path) -> None:
    for page, link in (("index", "results/README"), ("results/README", "local/report")):
        click = f"document.querySelector('[role=main] a[href=\"{link}.html\"]').click();"
        browser.add_script(clicked / f"{page}.html", click)
    browser.add_script(clicked / "results/local/report.html", CLICKS)
    check_sorted_and_copied(browser.probed(clicked / "index.html"))


def test_the_search_needs_no_server(clicked: Path) -> None:
    ask = "document.querySelector('[name=q]').value = 'emulated'; document.forms[0].submit();"
    browser.add_script(clicked / "index.html", ask)
    list_results = """
    const links = () => [...document.querySelectorAll("#search-results a")];
    setTimeout(() => show(links().map(a => a.getAttribute("href"))), 1500);
    """
    browser.add_script(clicked / "search.html", list_results)
    hits = browser.probed(clicked / "index.html")
    assert {"slurm/README.html", "results/emulated/report.html"} <= {*hits}


# the same page in two frames, of which the first runs no script
FRAMES = """<body>
<iframe src="PAGE" sandbox="allow-same-origin" width="1200"></iframe>
<iframe src="PAGE" width="1200"></iframe>
</body>"""
TEXTS = """
const frames = () => [...document.querySelectorAll("iframe")];
onload = () => show(frames().map(f => f.contentDocument.body.innerText.split("\\n")));
"""


@pytest.mark.parametrize("page", ["index", "slurm/README", "results/local/report"])
def test_a_page_is_whole_without_javascript(clicked: Path, page: str) -> None:
    (clicked / "frames.html").write_text(FRAMES.replace("PAGE", f"{page}.html"))
    browser.add_script(clicked / "frames.html", TEXTS)
    flag = "--allow-file-access-from-files"
    without, scripted = browser.probed(clicked / "frames.html", flag)
    assert len(without) > 50
    assert [line for line in scripted if line != "copy as CSV"] == without
