"""Backends that are shipped beside the core, each in a folder of its own."""
