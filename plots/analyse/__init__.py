"""Statistics computed from data frames of runs. Nothing here reads or writes a file."""
