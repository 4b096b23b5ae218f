"""A real browser without a window: pages with a script of the test's own, and what it showed."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000")
SHOW = """
const show = value => {
  const pre = document.createElement("pre");
  pre.id = "probe"; pre.textContent = JSON.stringify(value); document.body.appendChild(pre);
};
"""


def shown(page: Path, script: str) -> Any:
    """Run `script` at the end of a page, and return the value that it hands to `show(value)`."""
    command = next(filter(None, map(shutil.which, BROWSERS)), None)
    if command is None:
        pytest.skip("no browser here (Debian package chromium)")
    ending = f"<script>{{{SHOW}{script}}}</script></body>"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copy = Path(folder, "page.html")
        copy.write_text(page.read_text().replace("</body>", ending))
        words = [command, *FLAGS, f"--user-data-dir={folder}", "--dump-dom", copy.as_uri()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    text = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert text, done.stderr[-2000:]
    return json.loads(html.unescape(text[1]))
