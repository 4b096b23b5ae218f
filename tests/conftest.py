"""Rules of the whole suite: a skip is visible, and in CI it is a failure."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Give each of several test processes temporary files of its own.

    An mpirun that ends clears the folder in which another one, of the same user, is just starting:
    that one then says "The PMIx server's listener thread failed to start".
    """
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        folder = Path(tempfile.gettempdir()) / f"tests-{os.getuid()}-{worker}"
        folder.mkdir(exist_ok=True)
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # it remembers the first answer


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report
