"""Turn a study into job scripts; run and follow them. Needs no torch."""

from bench import version  # first: it ends an old Python, which could not parse the rest

__all__ = ["version"]
