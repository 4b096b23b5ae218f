"""The pages for people: what they link to, name and quote is there."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import plots.__main__
import slurm.__main__
from bench.config import parse_argv
from bench.options import new_parser
from bench.shell import Group
from bench.tools import collectives, timeline
from bench.tools.doctor import command as doctor

ROOT = Path(__file__).parents[1]
PROGRAMS = {"slurm": slurm.__main__.PROGRAM, "plots": plots.__main__.PROGRAM}
ROOMS = ("bench", "slurm", "plots", "results", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / room / "README.md" for room in ROOMS)])
PAGES += [ROOT / "bench" / f"{page}.md" for page in ("EXERCISE", "LEAVING_HOROVOD", "WHY_SLOW")]
PAGES += sorted((ROOT / "slurm/centre").rglob("README.md"))
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_PATH = re.compile(r"(?<![\w/.-])((?:bench|slurm|plots|tests|results)/[\w./*-]*\w)")
COMMAND = re.compile(r"python -m ([\w.]+)(?: ([a-z]+)\b)?")
MAKE = re.compile(r"\bmake ([a-z][a-z-]+)")
FUNCTION_IN = re.compile(r"`(\w*[a-z]\w*)`(?: in | \| )\[[^]]*\]\(([^)\s]+\.py)\)")
MADE_BY_THE_USER = ("results/mine", "results/STUDY")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchor(heading: str) -> str:
    """Make the anchor of a heading as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def functions(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text()))
    return {
        node.name
        for node in tree
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


every_page = pytest.mark.parametrize("page", PAGES, ids=name)
every_present_page = pytest.mark.parametrize("page", PRESENT, ids=name)


@every_page
def test_links_paths_and_functions_are_where_they_are_said_to_be(page: Path) -> None:
    text = page.read_text()
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if fragment:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            assert fragment in map(anchor, headings), link
    if page.name == "CHANGELOG.md":  # which names the past as well
        return
    for path in NAMED_PATH.findall(text):
        if not path.startswith(MADE_BY_THE_USER):
            assert list(ROOT.glob(path)) or list(page.parent.glob(path)), path
    for function, link in FUNCTION_IN.findall(text):
        assert function in functions(page.parent / link), f"{function} in {link}"


@every_present_page
def test_commands_exist(page: Path) -> None:
    text = page.read_text()
    for module, word in COMMAND.findall(text):
        found = importlib.util.find_spec(module)
        assert found is not None, module
        if found.submodule_search_locations and module != "pytest":
            assert importlib.util.find_spec(f"{module}.__main__") is not None, module
        if module in PROGRAMS and word:
            assert word in PROGRAMS[module], f"{module} {word}"
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    quoted = " ".join(re.findall(r"`[^`]*`|^```.*?^```", text, re.M | re.S))
    assert set(MAKE.findall(quoted)) <= set(targets)


def lines(page: Path, module: str) -> list[list[str]]:
    """List the words after `-m MODULE` of every command that a page shows in a block of its own."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    blocks = "\n".join(text for tag, text in fenced if tag in ("", "sh"))
    found = re.findall(rf"^.*?-m {module} (.*)$", blocks, re.M)
    return [shlex.split(words.partition(" | ")[0], comments=True) for words in found]


@every_present_page
def test_the_runs_that_are_shown_are_accepted(page: Path) -> None:
    tools: dict[str, Any] = {
        "doctor": doctor.parse,
        "collectives": collectives.parse,
        "timeline": timeline.parse,
    }
    for words in lines(page, "bench"):
        if (parse := tools.get(words[0])) is None:
            parse_argv([word for word in words if word != "--show-config"])  # which ends with 0
        else:
            parse(words[1:])


@every_present_page
def test_the_options_that_are_shown_exist(page: Path) -> None:
    for module, program in PROGRAMS.items():
        for words in lines(page, module):
            command: Any = program
            while isinstance(command, Group):
                command, words = command[words[0]], words[1:]
            known = new_parser(command, module)._option_string_actions
            assert {word for word in words if word.startswith("--")} <= {*known}, words


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_the_citation_agrees_with_the_project() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == project["version"]
    assert cited["license"] == project["license"]
    assert cited["authors"] == project["authors"]
    releases = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert releases[0] == f"{cited['version']}, {cited['date-released']}"
    assert {"message", "title", "authors"} <= cited.keys()
