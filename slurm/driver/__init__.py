"""Starts each run of a job script, ends it if need be, records its end, and says what is left."""
