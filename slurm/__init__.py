"""Commands that render, run, submit and follow the job scripts of a study. They need no torch."""
