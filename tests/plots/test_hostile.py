"""Text of logs, studies and jobs reaches a page as text, not as tag, link or crash."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plots.__main__ import main
from plots.report.format import escape
from tests.plots import logs
from tests.plots.test_html import check_harmless

EVIL = (
    "<script>alert(1)</script><img src=x "
    "onerror=alert(2)>](javascript:alert(3))[x](javascript:alert(4))\n\n"
    "# Faster\n- **Horovod is 500 % faster**\n\n| a | b |\n| --- | --- |\n$\\bad$ `code` "
    "&lt;b&gt; \ud800 \x1b[31m"
)
# The reader takes a name in printable characters alone; of what it refuses, the reason quotes a
# part.
PRINTABLE = "".join(c for c in EVIL.replace("\n", " ") if c.isprintable())
Spoil = Callable[[dict[str, Any], dict[str, Any], str], None]  # of a start event's config and host


IN_LOGS: dict[str, Spoil] = {
    "model": lambda config, host, evil: config.update(model=f"x.y:{evil}"),
    "hostname": lambda config, host, evil: host["ranks"][0].update(hostname=evil),
    "name of a version": lambda config, host, evil: host["versions"].update({evil: evil}),
}


def _spoil_log(path: Path, spoil: Spoil, evil: str) -> None:
    """Spoil a log, and seal it as a run would have: only then does a reader believe it."""
    first, *rest = path.read_text().splitlines(keepends=True)
    event = json.loads(first)
    spoil(event["config"], event["host"], evil)
    path.write_bytes(logs.resealed("".join([json.dumps(event) + "\n", *rest]).encode()))


def _check(folder: Path) -> None:
    """Check that a reader of Markdown would find no sign of Markdown unescaped on the page."""
    text = (folder / "report.md").read_text()
    bare = re.sub(r"`[^`\n]*`", "", text)  # all is literal inside
    assert not re.search(r"<(?!br>|0\.0001)", bare)
    assert not re.search(r"(?<!\\)\]\(javascript", bare)
    assert not re.search(r"(?<!\\)(\\\\)*\$", bare)
    assert not re.search(r"\*\*Horovod is 500", re.sub(r"\\\*", "", bare))
    for line in text.splitlines():
        assert not re.match(r"\s*(# Faster|- \*\*Horovod is|\| a \| b)", line)
    assert "\x1b" not in text
    check_harmless((folder / "report.html").read_text())
    assert max(map(len, text.splitlines())) < 20_000


@pytest.mark.parametrize(
    ("field", "everywhere", "evil"),
    [*((field, True, PRINTABLE) for field in IN_LOGS), ("hostname", False, EVIL)],
)
def test_text_of_a_log_stays_text(
    tmp_path: Path, field: str, everywhere: bool, evil: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for cell in ("ddp/mpi", "horovod/mpi"):
        path = tmp_path / "runs" / f"{cell.replace('/', '-')}.jsonl"
        logs.write(path, logs.config(cell, 2), 0.1)
        if everywhere or cell == "horovod/mpi":
            _spoil_log(path, IN_LOGS[field], evil)
    logs.study_toml(tmp_path)
    assert main(["report", str(tmp_path)]) in (0, 2)  # 2 where no run is left that may be compared
    out, error = capsys.readouterr()
    assert "\x1b" not in out
    assert len(out.splitlines()) <= 5
    assert error.count("\n") <= 1
    assert (tmp_path / "report.md").exists() != bool(error)
    if not error:
        _check(tmp_path)


def test_text_of_a_study_stays_text(tmp_path: Path) -> None:
    logs.write(tmp_path / "runs" / "single.jsonl", logs.config("single"), 0.1)
    texts = {"name": "test", "question": PRINTABLE, "site": EVIL.replace("\ud800", "")}
    lines = [f"{k} = {json.dumps(v)}\n" for k, v in texts.items()]
    (tmp_path / "study.toml").write_text("".join(lines))
    assert main(["report", str(tmp_path)]) == 0
    _check(tmp_path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("_a_ *b* [c](d) ~e~ $f$", r"\_a\_ \*b\* \[c\](d) \~e\~ \$f\$"),
        ("a <b> & c", "a &lt;b&gt; &amp; c"),
        (r"a\[b](c)", r"a\\\[b\](c)"),
        ("# a", r"\# a"),
        ("12. `a`", r"12\. 'a'"),
        ("a\n\n# b\u2028c", "a # b c"),
        ("\ud800\x1b\u202e", "???"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown
