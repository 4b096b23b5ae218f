"""Set-up of the environment that measures: standard library only, as nothing is installed yet."""
