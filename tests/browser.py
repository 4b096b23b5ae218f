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


def add_script(page: Path, script: str) -> None:
    """Run `script` at the page's end, where `show(value)` hands a value to `probed`."""
    ending = f"<script>{{{SHOW}{script}}}</script></body>"
    page.write_text(page.read_text().replace("</body>", ending))


def probed(page: Path, *flags: str) -> Any:
    """Read what a script has shown, on this page or on one that it went to."""
    command = next(filter(None, map(shutil.which, BROWSERS)), None)
    if command is None:
        pytest.skip("no browser here (Debian package chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [command, *FLAGS, f"--user-data-dir={profile}", *flags, "--dump-dom", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
        )
    shown = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert shown, done.stderr[-2000:]
    return json.loads(html.unescape(shown[1]))
