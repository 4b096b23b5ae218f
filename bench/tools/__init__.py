"""Set-up, doctor and overhead bench: no part of what is measured, and not in the digest of the
measuring code.
"""
