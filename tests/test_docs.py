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
TOOLS = {"doctor": doctor.parse, "collectives": collectives.parse, "timeline": timeline.parse}
FOLDERS = ("", "bench/", "slurm/", "slurm/centre/", "plots/", "results/", "tests/")
PAGES = [page for folder in FOLDERS for page in sorted(ROOT.glob(f"{folder}*.md"))]
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names the past as well
LINK = re.compile(r"\]\(([^)\s#]*)#?([^)\s]*)\)")
NAMED_PATH = re.compile(r"(?<![\w/.-])((?:bench|slurm|plots|tests|results)/[\w./*-]*\w)")
MADE_BY_THE_USER = ("results/mine", "results/STUDY")
COMMAND = re.compile(r"python -m ([\w.]+)(?: ([a-z]+)\b)?")
MAKE = re.compile(r"\bmake ([a-z][a-z-]+)")
FUNCTION_IN = re.compile(r"`(\w*[a-z]\w*)`(?: in | \| )\[[^]]*\]\(([^)\s]+\.py)\)")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchor(heading: str) -> str:
    """Make the anchor of a heading as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


every_present_page = pytest.mark.parametrize("page", PRESENT, ids=name)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for path, fragment in LINK.findall(page.read_text()):
        if "://" not in path:
            target = page.parent / path if path else page
            assert target.exists(), path
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M) if fragment else ()
            assert not fragment or fragment in map(anchor, headings), path


@every_present_page
def test_paths_functions_and_commands_exist(page: Path) -> None:
    text = page.read_text()
    for path in NAMED_PATH.findall(text):
        shipped = list(ROOT.glob(path)) or list(page.parent.glob(path))
        assert shipped or path.startswith(MADE_BY_THE_USER), path
    for function, link in FUNCTION_IN.findall(text):
        nodes = ast.walk(ast.parse((page.parent / link).read_text()))
        assert function in {getattr(node, "name", "") for node in nodes}, f"{function} in {link}"
    for module, word in COMMAND.findall(text):
        spec = importlib.util.find_spec(module)
        assert spec is not None, module
        if spec.submodule_search_locations:
            assert importlib.util.find_spec(f"{module}.__main__") is not None, module
        assert not word or word in PROGRAMS.get(module, word), f"{module} {word}"
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    quoted = " ".join(re.findall(r"`[^`]*`|^```.*?^```", text, re.M | re.S))
    assert set(MAKE.findall(quoted)) <= set(targets)


def lines(page: Path, module: str) -> list[list[str]]:
    """List the words after `-m MODULE` of every command that a page shows in a block of its own."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    blocks = "\n".join(text for tag, text in fenced if tag in ("", "sh"))
    commands = re.findall(rf"^.*?-m {module} (.*)$", blocks, re.M)
    return [shlex.split(words.partition(" | ")[0], comments=True) for words in commands]


@every_present_page
def test_the_options_that_are_shown_are_accepted(page: Path) -> None:
    for words in lines(page, "bench"):
        if words[0] in TOOLS:
            TOOLS[words[0]](words[1:])
        else:
            parse_argv([word for word in words if word != "--show-config"])  # which ends with 0
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
    shared = ("version", "license", "authors")
    assert [cited[key] for key in shared] == [project[key] for key in shared]
    assert f"\n## {cited['version']}, {cited['date-released']}\n" in (
        (ROOT / "CHANGELOG.md").read_text()
    )
