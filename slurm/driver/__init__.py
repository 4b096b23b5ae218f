"""Driver of a job script: it starts each run, enforces its time limit, and records how it ended."""
