"""A real Slurm of four nodes on one machine, in namespaces of its own: to test against, and to try
things out.
"""
