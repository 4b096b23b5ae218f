"""What happens around the runs of a job script, here and in a Slurm allocation: it starts each run,
ends it where it must end, records how it ended, and says what is left.
"""
