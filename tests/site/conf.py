"""Sphinx's configuration: the project's Markdown pages as one website, the reports as they are."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

project = "Horovod against PyTorch DDP"
html_title = f"{project} {VERSION}"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # links name headings as GitHub does
root_doc = "README"
include_patterns = ["*.md", "bench/*.md", "slurm/**README.md", "plots/*.md", "tests/*.md"]
include_patterns += ["results/*.md", "results/published/**.md", "results/*/report.md"]
exclude_patterns = [".*", "build", "site", "results/mine"]
html_theme = "alabaster"
html_theme_options = {"page_width": "72em", "body_max_width": "none", "sidebar_width": "16em"}
html_copy_source = False
html_show_copyright = False
html_domain_indices = html_use_index = False

NAVIGATION = """
```{toctree}
:hidden:
:glob:
bench/README
bench/*
slurm/**
plots/*
results/README
results/published/**
tests/*
*
```

```{toctree}
:hidden:
:glob:
:caption: Reports
results/*/report
```
"""


def add_navigation(_app: Any, page: str, source: list[str]) -> None:
    if page == root_doc:
        source[0] += NAVIGATION


def write_folders_as_text(app: Any, page: Any) -> None:
    """A folder has no page to link to; what is neither is left to Sphinx's warning."""
    for link in [*page.findall(lambda node: node.tagname == "pending_xref")]:
        if (Path(app.env.doc2path(app.env.docname)).parent / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def copy_reports(app: Any, error: Exception | None) -> None:
    """Each report.html over the page of its report.md, which serves navigation and search."""
    if error is not None:
        return
    for report in (ROOT / "results").glob("*/report.html"):
        shutil.copy(report, app.outdir / report.relative_to(ROOT))
    shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Any) -> None:
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", write_folders_as_text)
    app.connect("build-finished", copy_reports)
