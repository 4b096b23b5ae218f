"""Formats in which a study's numbers are exported, one module each."""
