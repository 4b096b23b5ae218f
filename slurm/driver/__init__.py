"""Driver of a job script: it starts each run, ends it if need be, and records how it ended."""
