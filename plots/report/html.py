"""report.html: the page and its details in one file, which needs no server and no network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from plots.analyse.study import Analysis, machine, workload
from plots.report import answer
from plots.report.axes import look
from plots.report.checks import checks
from plots.report.figures import Picture
from plots.report.format import clean, slug
from plots.report.lead import numbers
from plots.report.markdown import Page, Section, templates
from plots.report.onward import onward
from plots.report.why import why

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_SCRIPT = Path(__file__).with_name("page.js")
_LONG = re.compile("<td>(?=[^<]{30})")  # a sentence, which may wrap where a number must not
_IDS = re.compile(r"""(\bid="|url\(#|xlink:href="#)""")


def html(a: Analysis, page: Page, pictures: Sequence[Picture]) -> str:
    """Make the whole file; nothing of a log is a tag in a page's sections."""
    answering = next((p for p in pictures if p.narrow), None)
    environment = templates(autoescape=True)
    environment.globals.update(body=_body, slug=slug)
    environment.globals.update(picture=_picture, colour=lambda cell: look(cell, [cell])["color"])
    study = a.loaded.study
    return environment.get_template("page.html.j2").render(
        title=clean(page.title),
        question=study.question and clean(study.question),
        opening=answer.opening(a),
        verdicts=[finding.line for finding in answer.verdicts(a)],
        numbers=numbers(a),
        checks=checks(a),
        why=why(a),
        onward=Markup(_MARKDOWN.renderInline(onward(a))),
        machine=f"{clean(machine(a.loaded.host))}. {clean(workload(a))}.",
        answering=answering,
        others=[p for p in pictures if p is not answering],
        sections=page.sections,
        script=Markup(_SCRIPT.read_text(encoding="utf-8")),
    )


def bare_page(title: str, text: str) -> str:
    """Make a page of Markdown by itself."""
    head = f'<!doctype html>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
    return head + str(_MARKDOWN.render(text))


def _body(section: Section) -> Markup:
    rendered = _MARKDOWN.render(section.text)
    rendered = rendered.replace("<table>", '<div class="scroll"><table>')
    rendered = rendered.replace("</table>", "</table></div>")
    return Markup(_LONG.sub('<td class="long">', rendered))  # tags of the text are escaped


def _picture(picture: Picture) -> Markup:
    """Embed the SVG, so that its text is found and read; identifiers are of this figure alone."""
    head = '<figure id="figure-{}" role="img" aria-label="{}">'
    wide, narrow = _bare_svg(picture.svg, picture.name), picture.narrow
    if narrow:
        narrow = _bare_svg(narrow, f"{picture.name}-narrow")
        wide = f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
    start = Markup(head).format(picture.name, picture.alt)
    return start + Markup(wide) + Markup("</figure>")  # drawn by matplotlib


def _bare_svg(text: str, prefix: str) -> str:
    return _IDS.sub(rf"\g<1>{prefix}-", text[text.index("<svg") :])
