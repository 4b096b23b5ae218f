"""Rules of the whole suite: a skip is visible, and in CI it is a failure."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several test processes, of several suites too, temporary files of its own.

    An mpirun that ends clears the folder in which another one, of the same user, is just starting:
    that one then says "The PMIx server's listener thread failed to start".
    """
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        folder = tempfile.TemporaryDirectory(prefix=f"{worker}-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["TMPDIR"] = folder.name
        tempfile.tempdir = None  # it remembers the first answer


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report
