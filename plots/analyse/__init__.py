"""Rows to numbers: pure functions, no file is read or written."""
