"""Formats of other tools' logs, one module each."""
