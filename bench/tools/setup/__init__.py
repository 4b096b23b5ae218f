"""Set-up of the environment that measures: standard library only, because it runs before anything
is installed.
"""
