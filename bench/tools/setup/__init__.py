"""Set-up of the Python environment; it needs the standard library only."""
