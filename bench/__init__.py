"""Measure one configuration: one training loop, interchangeable backends, one run log.

Every room imports this first, so an old Python ends here; it must parse in Python 3.6.
"""

import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write(
        "error: Python {}.{}.{} ({}) is too old: 3.11 or later is needed; load or install one, run "
        "`make setup PYTHON=python3.11`, and start .venv/bin/python\n".format(
            *sys.version_info[:3], sys.executable
        )
    )
    sys.exit(2)


def version() -> str:
    """The project's version: from pyproject.toml in a checkout, else of the installed copy."""
    import tomllib
    from importlib import metadata

    try:
        text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        return str(tomllib.loads(text)["project"]["version"])
    except OSError:
        return metadata.version("horovod-vs-ddp")
