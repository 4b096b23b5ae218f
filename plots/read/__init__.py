"""Folders of run logs to rows: judges nothing, knows no analysis."""
