"""Functions from rows to numbers, which neither read nor write a file."""
